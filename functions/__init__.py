"""What runs when something happens: one thin Lambda handler a file."""
