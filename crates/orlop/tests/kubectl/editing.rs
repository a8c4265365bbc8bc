//! Updates: edit, label, annotate, patch, set, replace.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::Server;

fn field(server: &Server, path: &str) -> String {
    server.kubectl(&["get", "deployment", "web", "-o", &format!("jsonpath={path}")])
}

fn web() -> Server {
    let server = Server::start();
    server.kubectl(&["create", "deployment", "web", "--image=nginx:1", "--replicas=2"]);
    server
}

/// Writes an editor script that applies a sed substitution.
fn editor(folder: &tempfile::TempDir, substitution: &str) -> String {
    let path = folder.path().join("editor");
    fs::write(&path, format!("#!/bin/sh\nsed -i '{substitution}' \"$1\"\n")).expect("an editor");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an editor");
    path.display().to_string()
}

#[test]
fn kubectl_edit_updates_and_reports_errors() {
    let (server, folder) = (web(), tempfile::tempdir().expect("a folder"));
    let edit = |substitution: &str, arguments: &[&str]| {
        let editor = editor(&folder, substitution);
        server.run_with(&[&["edit"][..], arguments].concat(), "", &[("KUBE_EDITOR", &editor)])
    };
    let (done, said) = edit("s/replicas: 2/replicas: 4/", &["deployment", "web"]);
    assert!(done, "{said}");
    assert_eq!(said, "deployment.apps/web edited");
    assert_eq!(field(&server, "{.spec.replicas}"), "4");
    let (done, said) = edit("s/nothing/here/", &["deployment", "web"]);
    assert!(done && said == "Edit cancelled, no changes made.", "{said}");
    let (done, said) = edit("s/replicas: 4/replicas: -1/", &["deployment", "web"]);
    assert!(!done, "{said}");
    assert!(said.starts_with("error: deployments.apps \"web\" is invalid\n"), "{said}");
    let (done, said) = edit(
        "s/availableReplicas: .*//; s/status: {}/status: {replicas: 3}/",
        &["deployment", "web", "--subresource=status"],
    );
    assert!(done, "{said}");
    assert_eq!(field(&server, "{.status.replicas} {.spec.replicas}"), "3 4");
}

#[test]
fn labels_and_annotations_are_set_and_removed() {
    let server = web();
    let say = |arguments: &[&str]| server.kubectl(arguments);
    assert_eq!(say(&["label", "deployment", "web", "tier=front"]), "deployment.apps/web labeled");
    assert_eq!(
        server.refused(&["label", "deployment", "web", "tier=back"], ""),
        "error: 'tier' already has a value (front), and --overwrite is false"
    );
    assert_eq!(
        say(&["label", "--overwrite", "deployment", "web", "tier=back"]),
        "deployment.apps/web labeled"
    );
    assert_eq!(say(&["label", "deployment", "web", "tier=back"]), "deployment.apps/web not labeled");
    assert_eq!(say(&["label", "deployments", "-l", "tier=back", "more=1"]), "deployment.apps/web labeled");
    assert_eq!(field(&server, "{.metadata.labels}"), r#"{"app":"web","more":"1","tier":"back"}"#);
    assert_eq!(say(&["label", "deployment", "web", "tier-"]), "deployment.apps/web unlabeled");
    assert_eq!(say(&["annotate", "deployment", "web", "note=a b"]), "deployment.apps/web annotated");
    assert_eq!(field(&server, "{.metadata.annotations.note} {.metadata.generation}"), "a b 2");
    let version = field(&server, "{.metadata.resourceVersion}");
    let stale = ["annotate", "deployment", "web", "note=c", "--overwrite", "--resource-version=1"];
    let said = server.refused(&stale, "");
    assert!(
        said.contains("Error from server (Conflict)") && said.contains("the object has been modified"),
        "{said}"
    );
    server.kubectl(&[
        "annotate",
        "deployment",
        "web",
        "note=c",
        "--overwrite",
        "--resource-version",
        &version,
    ]);
    assert_eq!(say(&["annotate", "deployment", "web", "note-"]), "deployment.apps/web annotated");
    let wrong = server.refused(&["label", "deployment", "web", "a=not/a/value"], "");
    assert!(wrong.contains("invalid label value"), "{wrong}");
}

#[test]
fn kubectl_set_updates_pod_templates() {
    let server = web();
    let say = |arguments: &[&str]| server.kubectl(arguments);
    assert_eq!(
        say(&["set", "image", "deployment/web", "nginx=nginx:2"]),
        "deployment.apps/web image updated"
    );
    assert_eq!(say(&["set", "env", "deployment/web", "A=1", "B=2"]), "deployment.apps/web env updated");
    say(&["set", "env", "deployment/web", "A-"]);
    assert_eq!(say(&["set", "env", "deployment/web", "--list"]), "# Deployment web, container nginx\nB=2");
    let limits =
        ["set", "resources", "deployment/web", "--limits=cpu=200m,memory=64Mi", "--requests=cpu=100m"];
    assert_eq!(say(&limits), "deployment.apps/web resource requirements updated");
    say(&["set", "serviceaccount", "deployment/web", "builder"]);
    let container = "{.spec.template.spec.containers[0]";
    assert_eq!(field(&server, &format!("{container}.image}}")), "nginx:2");
    assert_eq!(
        field(&server, &format!("{container}.resources}}")),
        r#"{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"100m"}}"#
    );
    assert_eq!(field(&server, "{.spec.template.spec.serviceAccountName}"), "builder");
    let wrong = ["set", "resources", "deployment/web", "--limits=cpu=200m", "--requests=cpu=1"];
    let said = server.refused(&wrong, "");
    assert!(said.contains("must be less than or equal to cpu limit of 200m"), "{said}");
    server.kubectl(&["create", "service", "clusterip", "web", "--tcp=80"]);
    say(&["set", "selector", "service", "web", "app=other"]);
    let selector = ["get", "service", "web", "-o", "jsonpath={.spec.selector}"];
    assert_eq!(server.kubectl(&selector), r#"{"app":"other"}"#);
    let binding = ["create", "rolebinding", "r", "--role=x", "--user=one"];
    server.kubectl(&binding);
    say(&["set", "subject", "rolebinding", "r", "--user=two"]);
    let subjects = ["get", "rolebinding", "r", "-o", "jsonpath={.subjects[*].name}"];
    assert_eq!(server.kubectl(&subjects), "one two");
}

#[test]
fn patches_of_every_type_and_of_subresources() {
    let server = web();
    let patch =
        |arguments: &[&str]| server.run(&[&["patch", "deployment", "web"][..], arguments].concat(), "");
    for (arguments, replicas) in [
        (&["--type=merge", "-p", r#"{"spec":{"replicas":3}}"#][..], "3"),
        (&["-p", r#"{"spec":{"replicas":4}}"#], "4"),
        (&["--type=json", "-p", r#"[{"op":"replace","path":"/spec/replicas","value":5}]"#], "5"),
        (&["--subresource=scale", "--type=merge", "-p", r#"{"spec":{"replicas":6}}"#], "6"),
        // The main resource ignores changes of status.
        (&["--subresource=status", "--type=merge", "-p", r#"{"spec":{"replicas":7}}"#], "6"),
    ] {
        let (done, said) = patch(arguments);
        assert!(done, "{arguments:?}: {said}");
        assert_eq!(field(&server, "{.spec.replicas}"), replicas, "{arguments:?}");
    }
    patch(&["--subresource=status", "--type=merge", "-p", r#"{"status":{"replicas":6,"readyReplicas":2}}"#]);
    assert_eq!(field(&server, "{.status.readyReplicas} {.metadata.generation}"), "2 5");
    let shown = server.kubectl(&["get", "deployment", "web", "--subresource=scale", "-o", "yaml"]);
    assert!(shown.contains("kind: Scale") && shown.contains("selector: app=web"), "{shown}");
    for (arguments, expected) in [
        (&["-p", r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#][..], "field is immutable"),
        (
            &["--type=json", "-p", r#"[{"op":"test","path":"/spec/replicas","value":1}]"#],
            "The request is invalid: the server rejected our request due to an error in our request",
        ),
        (
            &["--type=json", "-p", r#"[{"op":"remove","path":"/spec/nothing"}]"#],
            "The request is invalid: the server rejected our request due to an error in our request",
        ),
        (
            &["-p", r#"{"spec":{"replicas":"many"}}"#],
            "The request is invalid: patch: Invalid value: \"map[spec:map[replicas:many]]\": ",
        ),
        (
            &["--type=merge", "-p", r#"{"spec":{"replicas":"many"}}"#],
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
    ] {
        let (done, said) = patch(arguments);
        assert!(!done && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn replace_updates_and_force_recreates() {
    let server = web();
    let uid = field(&server, "{.metadata.uid}");
    let yaml = server.kubectl(&["get", "deployment", "web", "-o", "yaml"]);
    let newer = yaml.replace("nginx:1", "nginx:2");
    assert_eq!(server.with_input(&["replace", "-f", "-"], &newer), "deployment.apps/web replaced");
    assert_eq!(field(&server, "{.metadata.uid}"), uid);
    let stale = server.refused(&["replace", "-f", "-"], &newer.replace("nginx:2", "nginx:3"));
    assert!(
        stale.contains(
            "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on \
             deployments.apps \"web\": the object has been modified; please apply your changes to the latest \
             version and try again"
        ),
        "{stale}"
    );
    let said = server.with_input(&["replace", "--force", "-f", "-"], &newer);
    assert_eq!(said, "deployment.apps \"web\" deleted\ndeployment.apps/web replaced");
    assert_ne!(field(&server, "{.metadata.uid}"), uid);
    let missing = server.refused(&["replace", "-f", "-"], &newer.replace("name: web", "name: other"));
    assert!(missing.contains("(NotFound)"), "{missing}");
}
