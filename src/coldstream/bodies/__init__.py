"""What is made of a message's body before anybody sees it: inflated, and read by its schema."""
