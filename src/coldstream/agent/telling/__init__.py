"""What an agent says of itself: metrics, heartbeats, progress, and what is told to systemd."""
