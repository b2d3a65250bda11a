"""What the agent asks of brokers, and what their answers prove."""
