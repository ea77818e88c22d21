#!/bin/sh
# Page somebody through PagerDuty's Events API v2 (Opsgenie and Grafana OnCall take it, too):
#   export PAGERDUTY_KEY_FILE=~/.pagerduty-key     # holds the integration's routing key; mode 0600
#   relkit launch --on-incident /path/to/pagerduty.sh ...
# Incidents of one job and kind are one alert. Needs curl and python3.
set -eu
PAGERDUTY_KEY=${PAGERDUTY_KEY:-$(cat "${PAGERDUTY_KEY_FILE:?names no file with the routing key}")}
export PAGERDUTY_KEY
python3 -c '
import json, os, sys
incident = json.load(sys.stdin)
print(json.dumps({
    "routing_key": os.environ["PAGERDUTY_KEY"].strip(),
    "event_action": "trigger",
    "dedup_key": "relkit/{job_id}/{kind}".format(**incident),
    "payload": {
        "summary": "{title} (job {job_id})".format(**incident)[:1024],
        "source": incident["host"],
        "severity": "critical" if incident["kind"] == "hang" else "error",
        "component": incident["job_id"],
        "class": incident["kind"],
        "custom_details": {
            "report": incident["report_path"],
            "reasons": incident["report"]["findings"][0].get("reasons", [])[:5],
        },
    },
}))
' | curl --silent --show-error --fail --max-time 20 --output /dev/null \
    --header 'Content-Type: application/json' --data-binary @- \
    "${PAGERDUTY_URL:-https://events.pagerduty.com/v2/enqueue}"
