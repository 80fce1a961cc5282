"""What the audit looks for, a family of rules in each file."""
