"""What a run can be exported to: one file for each kind of folder."""
