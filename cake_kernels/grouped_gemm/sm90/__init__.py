"""The sm_90a programs: configuration, tensor maps, launch, and the tile walk in Python."""
