"""What Lakesweep tells about itself: log lines and Prometheus series. It watches, it never decides."""
