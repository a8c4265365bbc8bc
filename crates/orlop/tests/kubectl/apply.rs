//! `kubectl apply` and `kubectl diff`: client-side, server-side, and migration between them.

use crate::support::Server;

fn deployment(image: &str, replicas: Option<u32>) -> String {
    let replicas = replicas.map(|count| format!("  replicas: {count}\n")).unwrap_or_default();
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, labels: {{app: web}}}}
spec:
{replicas}  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - {{name: nginx, image: \"{image}\", ports: [{{containerPort: 80}}]}}
"
    )
}

/// Returns field managers and their operations.
fn managers(server: &Server) -> String {
    let each = "jsonpath={range .metadata.managedFields[*]}{.manager}/{.operation} {end}";
    let found = server.kubectl(&["get", "deployment", "web", "--show-managed-fields", "-o", each]);
    let mut found: Vec<&str> = found.split_whitespace().collect();
    found.sort_unstable();
    found.join(" ")
}

fn field(server: &Server, path: &str) -> String {
    server.kubectl(&["get", "deployment", "web", "-o", &format!("jsonpath={path}")])
}

const IMAGE: &str = "{.spec.template.spec.containers[0].image}";

#[test]
fn client_side_apply_creates_updates_and_keeps_other_fields() {
    let server = Server::start();
    let apply = |yaml: &str| server.with_input(&["apply", "-f", "-"], yaml);
    assert_eq!(apply(&deployment("nginx:1", Some(2))), "deployment.apps/web created");
    assert_eq!(apply(&deployment("nginx:1", Some(2))), "deployment.apps/web unchanged");
    // Another client adds a container and scales; apply keeps both once it does not set replicas.
    server.kubectl(&["scale", "deployment", "web", "--replicas=5"]);
    let sidecar = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}"#;
    server.kubectl(&["patch", "deployment", "web", "-p", sidecar]);
    assert_eq!(apply(&deployment("nginx:2", Some(5))), "deployment.apps/web configured");
    assert_eq!(field(&server, "{.spec.template.spec.containers[*].name}"), "side nginx");
    assert_eq!(field(&server, "{.spec.template.spec.containers[?(@.name=='nginx')].image}"), "nginx:2");
    assert_eq!(apply(&deployment("nginx:2", None)), "deployment.apps/web configured");
    assert_eq!(field(&server, "{.spec.replicas}"), "1", "what is no longer applied takes its default");
    let last = server.kubectl(&["apply", "view-last-applied", "deployment/web", "-o", "json"]);
    assert!(last.contains("\"nginx:2\"") && !last.contains("replicas"), "{last}");
}

#[test]
fn dry_run_and_diff_write_nothing() {
    let server = Server::start();
    server.with_input(&["apply", "-f", "-"], &deployment("nginx:1", Some(2)));
    let version = field(&server, "{.metadata.resourceVersion}");
    let change = deployment("nginx:2", Some(2));
    let dry = server.with_input(&["apply", "--dry-run=server", "-f", "-"], &change);
    assert_eq!(dry, "deployment.apps/web configured (server dry run)");
    let dry = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
    let said = server.with_input(&dry, &change);
    assert!(said.starts_with("deployment.apps/web serverside-applied (server dry run)"), "{said}");
    for extra in [&[][..], &["--server-side", "--force-conflicts"]] {
        let diff = [&["diff"][..], extra, &["-f", "-"]].concat();
        // Exit code 1 means a difference.
        let shown = server.refused(&diff, &change);
        assert!(shown.contains("-      - image: nginx:1\n+      - image: nginx:2"), "{shown}");
        assert!(shown.contains("-  generation: 1\n+  generation: 2"), "{shown}");
    }
    assert_eq!(server.with_input(&["diff", "-f", "-"], &deployment("nginx:1", Some(2))), "");
    assert_eq!(field(&server, "{.metadata.resourceVersion}"), version);
}

#[test]
fn conflicts_name_the_manager_and_the_fields() {
    let server = Server::start();
    let apply = |manager: &'static str| ["apply", "--server-side", "--field-manager", manager, "-f", "-"];
    server.with_input(&apply("one"), &deployment("nginx:1", Some(2)));
    // Equal values do not conflict: both managers own them.
    server.with_input(&apply("two"), &deployment("nginx:1", Some(2)));
    assert_eq!(managers(&server), "one/Apply two/Apply");
    let several = server.refused(&apply("two"), &deployment("nginx:2", Some(3)));
    assert!(
        several.starts_with(
            "error: Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.replicas\n- \
             .spec.template.spec.containers[name=\"nginx\"].image\nPlease review the fields above"
        ),
        "{several}"
    );
    // A manager that updated without apply is named with its apiVersion.
    server.kubectl(&["scale", "deployment", "web", "--replicas=4"]);
    let scaled = server.refused(&apply("one"), &deployment("nginx:1", Some(2)));
    assert!(
        scaled.contains(
            "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: \
             .spec.replicas"
        ),
        "{scaled}"
    );
    let mut forced = apply("two").to_vec();
    forced.push("--force-conflicts");
    server.with_input(&forced, &deployment("nginx:2", Some(3)));
    assert_eq!(format!("{} {}", field(&server, IMAGE), field(&server, "{.spec.replicas}")), "nginx:2 3");
    // The first manager has lost the image and gives up the replicas; the second, now the only owner, removes them.
    server.with_input(&apply("two"), &deployment("nginx:2", None));
    assert_eq!(field(&server, "{.spec.replicas}"), "1");
}

#[test]
fn client_side_apply_migrates_to_server_side_and_back() {
    let server = Server::start();
    server.with_input(&["apply", "-f", "-"], &deployment("nginx:1", Some(2)));
    assert_eq!(managers(&server), "kubectl-client-side-apply/Update");
    // No conflict with its own earlier client-side apply, and the new field takes effect.
    let moved = server.with_input(&["apply", "--server-side", "-f", "-"], &deployment("nginx:2", Some(2)));
    assert_eq!(moved, "deployment.apps/web serverside-applied");
    assert_eq!(managers(&server), "kubectl-last-applied/Apply kubectl/Apply");
    assert_eq!(field(&server, IMAGE), "nginx:2");
    // Fields that are no longer applied are removed, as by client-side apply.
    server.with_input(&["apply", "--server-side", "-f", "-"], &deployment("nginx:2", None));
    assert_eq!(field(&server, "{.spec.replicas}"), "1");
    let last = field(&server, r"{.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}");
    assert!(last.contains("nginx:2") && !last.contains("replicas"), "{last}");
    let back = server.with_input(&["apply", "-f", "-"], &deployment("nginx:3", None));
    assert_eq!(back, "deployment.apps/web configured");
    assert_eq!(field(&server, IMAGE), "nginx:3");
}

#[test]
fn apply_prune_deletes_objects_absent_from_the_files() {
    let server = Server::start();
    let map = |name: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: one}}}}\n")
    };
    let prune = ["apply", "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    server.with_input(&prune, &(map("a") + &map("b")));
    let said = server.with_input(&prune, &map("a"));
    assert_eq!(said, "configmap/a unchanged\nconfigmap/b pruned");
}

#[test]
fn strict_validation_names_unknown_fields() {
    let server = Server::start();
    let wrong = deployment("nginx:1", None).replace("  template:", "  templates: 1\n  template:");
    for (command, expected) in [
        (&["apply", "-f", "-"][..], "strict decoding error: unknown field \"spec.templates\""),
        (&["create", "-f", "-"], "strict decoding error: unknown field \"spec.templates\""),
        (
            &["apply", "--server-side", "-f", "-"],
            "Error from server: failed to create typed patch object (default/web; apps/v1, Kind=Deployment): \
             .spec.templates: field not declared in schema",
        ),
    ] {
        let said = server.refused(command, &wrong);
        assert!(said.contains(expected), "{said}");
    }
    let said = server.with_input(&["create", "--validate=warn", "-f", "-"], &wrong);
    assert_eq!(said, "deployment.apps/web created\nWarning: unknown field \"spec.templates\"");
}
