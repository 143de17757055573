package queue

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

func TestMetricsCountEvents(t *testing.T) {
	var m Metrics
	for _, e := range []Event{
		{What: Started, Job: Job{Kind: "pack"}}, {What: Done, Job: Job{Kind: "pack"}, Took: time.Second},
		{What: Started, Job: Job{Kind: "pack"}}, {What: Done, Job: Job{Kind: "pack"}, Took: time.Second / 2},
		{What: Started, Job: Job{Kind: "list"}}, {What: Dropped, Job: Job{Kind: "list"}, Err: errors.New("no")},
		{What: Away}, {What: Back}, {What: Away},
	} {
		m.Tell(e)
	}
	var out bytes.Buffer
	if _, err := m.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP holdall_jobs_total Jobs that were started, and how they ended, by kind.
# TYPE holdall_jobs_total counter
holdall_jobs_total{kind="list",result="set aside"} 1
holdall_jobs_total{kind="list",result="started"} 1
holdall_jobs_total{kind="pack",result="done"} 2
holdall_jobs_total{kind="pack",result="started"} 2
# HELP holdall_job_seconds_total Time spent on jobs, by kind and how they ended.
# TYPE holdall_job_seconds_total counter
holdall_job_seconds_total{kind="list",result="set aside"} 0
holdall_job_seconds_total{kind="pack",result="done"} 1.5
# HELP holdall_queue_away Whether the queue's database does not answer.
# TYPE holdall_queue_away gauge
holdall_queue_away 1
`
	if out.String() != want {
		t.Errorf("%s", &out)
	}
}
