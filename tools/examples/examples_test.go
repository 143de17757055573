// Package examples_test checks the folder examples by the types of the schedulers that read it.
package examples_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	argo "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	awsbatch "github.com/aws/aws-sdk-go-v2/service/batch"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const dir = "../../examples"

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// strict decodes YAML. Each key must be one of the type, written as there, and occur once.
func strict(t *testing.T, name string, into any) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict(read(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	wrong, err := kubejson.UnmarshalStrict(asJSON, into)
	for _, err := range append(wrong, err) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// pod checks what the types do not say.
func pod(t *testing.T, p corev1.PodSpec, policy *batchv1.PodFailurePolicy) {
	t.Helper()
	if policy == nil || p.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("restarts %s: a podFailurePolicy needs Never", p.RestartPolicy)
	}
	if p.SecurityContext == nil || p.SecurityContext.RunAsUser == nil || *p.SecurityContext.RunAsUser != 65532 {
		t.Error("it does not run as the user of the image")
	}
	names := map[string]bool{}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		names[c.Name] = true
		container(t, c)
	}
	for _, r := range policy.Rules {
		if (r.OnExitCodes == nil) == (len(r.OnPodConditions) == 0) {
			t.Errorf("%+v: expected exit codes or conditions", r)
		}
		if r.OnExitCodes != nil && r.OnExitCodes.ContainerName != nil && !names[*r.OnExitCodes.ContainerName] {
			t.Errorf("there is no container %s", *r.OnExitCodes.ContainerName)
		}
	}
}

func container(t *testing.T, c corev1.Container) {
	t.Helper()
	for _, e := range c.Env {
		if secret := strings.Contains(e.Name, "PASSWORD") || strings.Contains(e.Name, "KEY"); secret != (e.Value == "") || secret && (e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil) {
			t.Errorf("%s: %s: secrets come from a Secret, all others are here", c.Name, e.Name)
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.StartupProbe} {
		if probe != nil && (probe.HTTPGet == nil || !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.StrVal })) {
			t.Errorf("%s: a probe of no port", c.Name)
		}
	}
	if c.Image == "" || len(c.Args) == 0 || c.Args[0] != "fleet" || len(c.Env) == 0 {
		t.Errorf("%s: %q %q, %d variables", c.Name, c.Image, c.Args, len(c.Env))
	}
}

func TestKubernetesTakesTheJobs(t *testing.T) {
	var job batchv1.Job
	strict(t, "kubernetes-workers.yaml", &job)
	pod(t, job.Spec.Template.Spec, job.Spec.PodFailurePolicy)
	var cron batchv1.CronJob
	strict(t, "kubernetes-nightly.yaml", &cron)
	in := cron.Spec.JobTemplate.Spec
	pod(t, in.Template.Spec, in.PodFailurePolicy)
	if job.Kind != "Job" || cron.Kind != "CronJob" || job.APIVersion != batchv1.SchemeGroupVersion.String() || cron.APIVersion != job.APIVersion {
		t.Errorf("%s, %s", job.TypeMeta, cron.TypeMeta)
	}
}

func TestArgoTakesTheWorkflow(t *testing.T) {
	var flow argo.Workflow
	strict(t, "argo-workflow.yaml", &flow)
	if flow.Kind != "Workflow" || flow.APIVersion != argo.SchemeGroupVersion.String() {
		t.Errorf("%s", flow.TypeMeta)
	}
	used, known := map[string]bool{flow.Spec.Entrypoint: true}, map[string]bool{}
	for _, x := range flow.Spec.Templates {
		known[x.Name] = true
		for _, step := range slices.Concat(steps(x.Steps)...) {
			used[step.Template] = true
		}
		if x.Container != nil {
			container(t, *x.Container)
		}
		if len(x.Steps) == 0 && (x.Container == nil || x.RetryStrategy == nil) {
			t.Errorf("%s: no steps, and no container that is tried again", x.Name)
		}
	}
	if !reflect.DeepEqual(used, known) {
		t.Errorf("uses %v of %v", used, known)
	}
}

func steps(all []argo.ParallelSteps) (plain [][]argo.WorkflowStep) {
	for _, p := range all {
		plain = append(plain, p.Steps)
	}
	return plain
}

// A sent is a server that keeps what the client of AWS sends.
type sent []byte

func (s *sent) Do(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	*s = b
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, err
}

// The client of AWS requires what a request must have. What it sends has all that is in the file, so each key is
// one that it knows, written as it is there.
func TestAWSBatchTakesTheJob(t *testing.T) {
	var got sent
	client := awsbatch.New(awsbatch.Options{Region: "us-east-1", HTTPClient: &got})
	take := func(name string, input any, send func() error) {
		t.Helper()
		is := json.NewDecoder(bytes.NewReader(read(t, name)))
		is.DisallowUnknownFields()
		if err := is.Decode(input); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := send(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var in, out any
		if err := json.Unmarshal(read(t, name), &in); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &out); err != nil || !reflect.DeepEqual(in, out) {
			t.Errorf("%s: %v; sent %s", name, err, got)
		}
	}
	var definition awsbatch.RegisterJobDefinitionInput
	take("aws-batch-job-definition.json", &definition, func() error {
		_, err := client.RegisterJobDefinition(t.Context(), &definition)
		return err
	})
	for _, x := range definition.RetryStrategy.EvaluateOnExit {
		if !slices.Contains(x.Action.Values(), x.Action) {
			t.Errorf("action %s", x.Action)
		}
	}
	var job awsbatch.SubmitJobInput
	take("aws-batch-job.json", &job, func() error {
		_, err := client.SubmitJob(t.Context(), &job)
		return err
	})
	if *job.JobDefinition != *definition.JobDefinitionName || *job.ArrayProperties.Size < 2 {
		t.Errorf("%s, %d", *job.JobDefinition, *job.ArrayProperties.Size)
	}
}

// Each file is one of those above.
func TestEveryExampleIsChecked(t *testing.T) {
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	if want := []string{"README.md", "argo-workflow.yaml", "aws-batch-job-definition.json", "aws-batch-job.json", "kubernetes-nightly.yaml", "kubernetes-workers.yaml"}; !slices.Equal(names, want) {
		t.Errorf("%q, checked are %q", names, want)
	}
}
