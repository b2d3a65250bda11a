"""The real agent, commits, claims, workflows and readers in a world that one seed decides.

    choices     every decision of a run, drawn from a seed or replayed from a list
    explore     every order of a few tasks, points and footprints: what makes that quick
    scheduler   tasks that stop at every call to the world; who goes on is a choice
    net         what can happen to a call: refused, lost, carried out without an answer
    services    S3, DynamoDB and the event bus, over the in-memory adapters
    events      the queue before the commit function: batches, partial failures, dead letters
    cluster     brokers with Osiris's semantics and their files
    machines    the host under an agent: its clocks, disk, threads that are tasks
    nodes       the agent beside a broker: the real one, loop and uploads
    oracle      what must hold after every step; oracle_entries: what may enter a manifest,
                oracle_steps: what may become of one
    contents    what every object holds, and what the world has harmed
    reading     manifests and trailers read by the format's page, not by the product
    scene       all of that together: what one history is played with
    brokers     what may happen to machines, brokers and agents
    workflows   what may happen in AWS, and people who read
    operators   what people do: repair, drop, delete, hold
    harm        what becomes of objects without us
    conflicts   a task stops between its load and its commit, and another one lands
    history     one history from a seed: a past, a while of trouble, then quiescence
    quiescence  the end of a history: all must come to rest, last_checks says what then holds
    shrink      a failing history made small
    run         many seeds on all cores

Nothing here reads a clock, draws a random number of its own, or starts a thread.
"""
