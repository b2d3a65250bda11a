"""RabbitMQ's stream protocol, read side: history from S3, the tail from the local tier."""
