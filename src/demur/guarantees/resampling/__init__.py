"""What tuned rules do on new data, from drawing the rows at hand anew."""
