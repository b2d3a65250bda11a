"""MiniStack 1.5.33, bound to loopback, with its gaps closed.

    __main__      arguments, lock, socket, serve, save on SIGTERM
    corrections   the list of corrections, each can be switched off by name
    functions     Lambda: interpreter, errors, logs
    metrics       log lines in embedded metric format become metrics
    queues        SQS and its event source
    streams       DynamoDB streams as an event source
    machines      Step Functions
    storage       S3: checksums, objects that a crash cut short
    durability    snapshots
    loopback      no other interface

It must not import anything of coldstream but itself.
"""
