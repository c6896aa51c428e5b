"""Parameters, memory, speed and hours of a training that has not begun."""
