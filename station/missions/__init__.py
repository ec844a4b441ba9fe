"""Missions: what the station does with a drone, as pure state machines."""
