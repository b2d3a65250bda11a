"""The real agent, commits, claims, workflows and readers in a world that one seed decides.

    choices     every decision of a run, drawn from a seed or replayed from a list
    explore     every order of a few tasks, points and footprints: what makes that quick
    scheduler   tasks that stop at every call to the world; who goes on is a choice
    net         what can happen to a call: refused, lost, carried out without an answer
    services    S3, DynamoDB and the event bus, over the in-memory adapters
    cluster     brokers with Osiris's semantics and their files
    nodes       the agent beside a broker: the real follower and the real upload
    oracle      what must hold after every step
    scene       all of that together: what one history is played with
    brokers     what may happen to brokers and agents
    workflows   what may happen in AWS, and people who read
    peace       the end of a history: all must come to rest, last_checks says what then holds
    history     one history from a seed: a while of trouble, then peace
    shrink      a failing history made small
    run         many seeds on all cores

Nothing here reads a clock, draws a random number of its own, or starts a thread.
"""
