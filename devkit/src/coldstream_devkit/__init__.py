"""What runs from a checkout of coldstream only, and ships in no wheel.

    simulation/   whole histories of the system, each from one seed; mutants; every interleaving
    suites/       the conformance suite of each port: the fakes and the adapters run the same one
    local/        the embedded AWS, and the command `coldstream local`
    demo/         `make demo`
    steps, survival, bucket     what a step from one state to the next must keep
    generator, fragments, messages, odd_keys     data to test with
    emulator      the embedded AWS as a pytest fixture
    fuzz_columns  the decoding kernel under hostile bytes
    rooms         lines, circles of imports and long functions of the product
    reference     docs/reference/cli.md, from the commands

Product code never imports it (`lint-imports`).
"""
