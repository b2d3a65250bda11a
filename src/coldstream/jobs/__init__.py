"""The work of the Glue jobs: pure transforms, and drivers that run them over many streams."""
