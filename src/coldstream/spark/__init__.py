"""`spark.read.format("rabbitmq_stream")`: streams as tables."""
