//! Admission policies as users see them.

use crate::support::Server;

const REPLICAS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  variables:
  - {name: replicas, expression: object.spec.replicas}
  validations:
  - expression: variables.replicas <= 5
    messageExpression: "'at most 5 replicas, not ' + string(variables.replicas)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas-test}
spec:
  policyName: replicas
  validationActions: [Deny]
  matchResources:
    namespaceSelector: {matchLabels: {environment: test}}
"#;

#[test]
fn validating_policy_denies_and_warns() {
    let server = Server::start();
    server.with_input(&["apply", "-f", "-"], REPLICAS);
    server.kubectl(&["create", "namespace", "test"]);
    let create = |name: &str, replicas: &str, more: &[&str]| {
        let replicas = format!("--replicas={replicas}");
        let arguments = ["create", "deployment", name, "--image=nginx", &replicas, "-n", "test"];
        server.run(&[&arguments[..], more].concat(), "")
    };
    assert!(create("before", "6", &[]).0, "the namespace is not selected");
    server.kubectl(&["label", "namespace", "test", "environment=test"]);
    let (created, text) = create("d", "6", &[]);
    assert!(!created);
    let denial = "ValidatingAdmissionPolicy 'replicas' with binding 'replicas-test' denied request: at most 5 replicas, not 6";
    assert!(text.contains(denial), "{text}");
    assert!(!create("d", "6", &["--dry-run=server"]).0);
    assert!(create("d", "5", &[]).0);
    let scaled =
        server.refused(&["patch", "deployment", "d", "-n", "test", "-p", r#"{"spec":{"replicas":7}}"#], "");
    assert!(scaled.contains("at most 5 replicas, not 7"), "{scaled}");

    let warn = r#"{"spec":{"validationActions":["Warn"]}}"#;
    server.kubectl(&[
        "patch",
        "validatingadmissionpolicybinding",
        "replicas-test",
        "--type=merge",
        "-p",
        warn,
    ]);
    let (created, text) = create("e", "6", &[]);
    assert!(created);
    let warning = "Warning: Validation failed for ValidatingAdmissionPolicy 'replicas' with binding 'replicas-test': at most 5 replicas, not 6";
    assert!(text.contains(warning), "{text}");
    let listed = server.kubectl(&["get", "validatingadmissionpolicies,validatingadmissionpolicybindings"]);
    assert!(
        listed.contains("VALIDATIONS") && listed.contains("PARAMKIND") && listed.contains("<unset>"),
        "{listed}"
    );
    server.kubectl(&["delete", "validatingadmissionpolicy", "replicas"]);
    assert!(create("f", "6", &[]).1.ends_with("deployment.apps/f created"));
}

#[test]
fn policy_is_compiled_when_it_is_written() {
    let server = Server::start();
    let broken = REPLICAS.replace("variables.replicas <= 5", "variables.replica <= 5");
    let refused = server.refused(&["apply", "-f", "-"], &broken);
    assert!(
        refused.contains("compilation failed: ERROR: <input>:1:10: undefined field 'replica'"),
        "{refused}"
    );
    let wrong = REPLICAS.replace("variables.replicas <= 5", "variables.replicas");
    let refused = server.refused(&["apply", "-f", "-"], &wrong);
    assert!(refused.contains("must evaluate to bool but got dyn"), "{refused}");
}

#[test]
fn status_warns_about_types() {
    let server = Server::start();
    let policy = REPLICAS.replace("variables.replicas <= 5", "object.spec.replicas > '5' || object.foo");
    server.with_input(&["apply", "-f", "-"], &policy);
    let status = |path: &str| {
        let path = format!("jsonpath={{.status.{path}}}");
        server.kubectl(&["get", "validatingadmissionpolicy", "replicas", "-o", &path])
    };
    server.eventually(
        &["get", "validatingadmissionpolicy", "replicas", "-o", "jsonpath={.status.observedGeneration}"],
        |text| text == "1",
    );
    assert_eq!(status("typeChecking.expressionWarnings[*].fieldRef"), "spec.validations[0].expression");
    assert_eq!(
        status("typeChecking.expressionWarnings[0].warning"),
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n \
         | object.spec.replicas > '5' || object.foo\n | .....................^\n\
         ERROR: <input>:1:37: undefined field 'foo'\n | object.spec.replicas > '5' || object.foo\n | ....................................^"
    );
    server.with_input(&["apply", "-f", "-"], REPLICAS);
    server
        .eventually(&["get", "validatingadmissionpolicy", "replicas", "-o", "jsonpath={.status}"], |text| {
            text == r#"{"observedGeneration":2,"typeChecking":{}}"#
        });
}

const LIMITS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: limits.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: limits, singular: limit, kind: Limit}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {max: {type: integer}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limited}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations:
  - expression: "!has(object.data) || size(object.data) <= params.max"
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limited}
spec:
  policyName: limited
  validationActions: [Deny]
  paramRef: {selector: {}, parameterNotFoundAction: Allow}
"#;

#[test]
fn parameters_are_of_a_custom_kind() {
    let server = Server::start();
    server.with_input(&["apply", "-f", "-"], LIMITS);
    let create = |name: &str, keys: &[&str]| server.run(&[&["create", "configmap", name], keys].concat(), "");
    let two = ["--from-literal=a=1", "--from-literal=b=2"];
    assert!(create("free", &two).0);
    let limit = "apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: one}\nmax: 1\n";
    server.with_input(&["apply", "-f", "-"], limit);
    let (created, text) = create("m", &two);
    assert!(!created);
    let denial = "error: failed to create configmap: configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'limited' with binding 'limited' denied request: failed expression: !has(object.data) || size(object.data) <= params.max";
    assert_eq!(text, denial);
    assert!(create("m", &two[..1]).0);
    server.kubectl(&["delete", "limit", "one"]);
    assert!(create("n", &two).0);
    // Whoever may not read parameters may not bind a policy to them.
    server.kubectl(&["create", "clusterrole", "policies", "--verb=*", "--resource=validatingadmissionpolicies.admissionregistration.k8s.io,validatingadmissionpolicybindings.admissionregistration.k8s.io"]);
    server.kubectl(&["create", "clusterrolebinding", "policies", "--clusterrole=policies", "--user=ann"]);
    let policies: Vec<&str> = LIMITS.splitn(2, "---").collect();
    let renamed =
        policies[1].replace("name: limited", "name: anns").replace("policyName: limited", "policyName: anns");
    let refused = server.refused(&["create", "--as=ann", "-f", "-"], &renamed);
    let denial = r#"spec.paramKind: Forbidden: user &{ann  [system:authenticated] map[]} must have "get" permission on all objects of the referenced paramKind (kind=Limit, apiVersion=example.com/v1)"#;
    assert!(refused.contains(denial), "{refused}");
    let denial = r#"spec.paramRef: Forbidden: unable to get policy anns to determine minimum required permissions and user &{ann  [system:authenticated] map[]} does not have "list" permission for all groups, versions and resources"#;
    assert!(refused.contains(denial), "{refused}");
}

const SIDECAR: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sidecar}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: not-yet, expression: "!has(object.spec.initContainers) || !object.spec.initContainers.exists(c, c.name == 'mesh')"}
  failurePolicy: Ignore
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{spec: Object.spec{initContainers: [
          Object.spec.initContainers{name: "mesh", image: "mesh:1", restartPolicy: "Always"}]}}
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/mesh"), value: "yes"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sidecar}
spec: {policyName: sidecar}
"#;

#[test]
fn mutating_policy_adds_a_sidecar() {
    let server = Server::start();
    server.with_input(&["apply", "-f", "-"], SIDECAR);
    server.kubectl(&["run", "p", "--image=nginx"]);
    let shown = server.kubectl(&[
        "get",
        "pod",
        "p",
        "-o",
        "jsonpath={.spec.initContainers[*].name} {.spec.initContainers[0].imagePullPolicy} {.metadata.labels.example\\.com/mesh} {.spec.containers[*].name}",
    ]);
    assert_eq!(shown, "mesh IfNotPresent yes p");
    let owners = server.kubectl(&[
        "get",
        "pod",
        "p",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields}",
    ]);
    assert!(!owners.contains("mesh"), "nobody owns what a policy sets: {owners}");
    let listed = server.kubectl(&["get", "mutatingadmissionpolicies"]);
    assert!(listed.contains("MUTATIONS"), "{listed}");
}
