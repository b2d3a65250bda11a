"""A campaign against the agent: a real cluster, real processes, and whatever can die, dying.

    python -m coldstream_devkit.campaign --failovers 50 --kills 500 --minutes 60 --seed 7

Three RabbitMQ nodes, an agent beside each (`coldstream agent run --committed broker`), publishers
that wait for confirms, and a tap that keeps what the brokers deliver. Nodes and agents are killed,
frozen and started again, streams deleted and created anew. In the end everything is started and
left to settle, and each message is compared by offset and SHA-256: the tier has all that was
confirmed, once, in order, and nothing that the brokers have not delivered.
"""
