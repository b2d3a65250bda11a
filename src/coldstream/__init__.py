"""Bottomless, serverless storage for RabbitMQ streams on AWS, with no broker plugin."""
