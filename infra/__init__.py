"""What exists in the AWS account: the stack composes, constructs create."""
