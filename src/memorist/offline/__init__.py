"""What happens while the store is down: spooling writes, answering without it, and replaying."""
