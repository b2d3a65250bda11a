"""What a live RabbitMQ broker is asked: over its stream port and its management API."""
