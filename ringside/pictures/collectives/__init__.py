"""Pictures of collectives: times, winners, timelines, schedules."""
