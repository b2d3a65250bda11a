"""Everything that runs in the interpreter of `.localaws`.

That interpreter gets this directory on its path, so it can import `localaws`, and nothing else of
coldstream: the two environments pin different versions of botocore.
"""
