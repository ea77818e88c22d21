"""What every picture and page is drawn with: colours, scales, safe text."""
