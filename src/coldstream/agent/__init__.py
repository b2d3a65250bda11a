"""The agent beside a broker node: follow the stream directories, cut, upload, watch, claim."""
