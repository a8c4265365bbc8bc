//! Output of kubectl: tables, formats, explain, discovery, whoami.

use crate::support::Server;

#[test]
fn objects_print_in_every_output_format() {
    let server = Server::start();
    for (name, image) in [("a", "one"), ("b", "two")] {
        server.kubectl(&["run", name, "--image", image, "--labels", &format!("app={name}")]);
    }
    let get = |arguments: &[&str]| server.kubectl(&[&["get", "pods"][..], arguments].concat());
    assert_eq!(get(&["-o", "name"]), "pod/a\npod/b");
    assert_eq!(get(&["-o", "jsonpath={.items[*].spec.containers[0].image}"]), "one two");
    let columns = get(&["-o", "custom-columns=N:.metadata.name,I:.spec.containers[0].image"]);
    assert_eq!(columns, "N     I\na     one\nb     two");
    let template = "go-template={{range .items}}{{.metadata.name}}={{.status.phase}} {{end}}";
    assert_eq!(get(&["-o", template]), "a=Pending b=Pending");
    assert!(get(&["-o", "json"]).contains("\"kind\": \"List\""));
    assert!(get(&["a", "-o", "yaml"]).starts_with("apiVersion: v1\nkind: Pod\n"));
    let wide = get(&["-o", "wide"]);
    let heading: Vec<&str> = wide.lines().next().unwrap_or_default().split("  ").map(str::trim).collect();
    let heading: Vec<&str> = heading.into_iter().filter(|word| !word.is_empty()).collect();
    let expected =
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"];
    assert_eq!(heading, expected);
    assert!(get(&["--show-labels", "-L", "app"]).contains("app=b"));
    assert_eq!(get(&["--sort-by=.metadata.name", "-o", "name"]), "pod/a\npod/b");
    // Describe each object, then a table of all.
    assert_eq!(get(&["-A", "--chunk-size=1", "--no-headers"]).lines().count(), 2);
    assert_eq!(get(&["--field-selector=status.phase=Running"]), "No resources found in default namespace.");
    let several = server.kubectl(&["get", "pod/a", "service/kubernetes", "-o", "name"]);
    assert_eq!(several, "pod/a\nservice/kubernetes");
    let all = server.kubectl(&["get", "all", "-o", "name"]);
    assert_eq!(all, "pod/a\npod/b\nservice/kubernetes");
    let described = server.kubectl(&["describe", "pod", "a"]);
    assert!(
        described.lines().any(|line| line.starts_with("Status:") && line.ends_with("Pending")),
        "{described}"
    );
    let unknown = server.refused(&["get", "nonsense"], "");
    assert_eq!(unknown, "error: the server doesn't have a resource type \"nonsense\"");
}

#[test]
fn kubectl_get_watch_ends_with_its_timeout() {
    let server = Server::start();
    server.kubectl(&["create", "configmap", "a"]);
    let watch =
        ["get", "configmap", "a", "--watch", "--output-watch-events", "-o", "name", "--request-timeout=3s"];
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| server.run(&watch, "").1);
        // The watch may start before or after this; either way it sees the last state.
        server.kubectl(&["label", "configmap", "a", "x=y"]);
        let seen = seen.join().expect("kubectl");
        assert!(seen.lines().any(|line| line.contains("configmap/a")), "{seen}");
    });
}

#[test]
fn kubectl_explain_describes_fields() {
    let server = Server::start();
    let strategy = server.kubectl(&["explain", "deployment.spec.strategy"]);
    assert!(
        strategy.starts_with(
            "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n\nFIELD: strategy <DeploymentStrategy>"
        ),
        "{strategy}"
    );
    assert!(strategy.contains("rollingUpdate\t<RollingUpdateDeployment>"), "{strategy}");
    let recursive = server.kubectl(&["explain", "pods", "--recursive"]);
    assert!(recursive.lines().count() > 900, "{} lines", recursive.lines().count());
    let missing = server.refused(&["explain", "pod.spec.nothing"], "");
    assert!(missing.ends_with("error: field \"nothing\" does not exist"), "{missing}");
    let both = ["explain", "hpa", "--api-version=autoscaling/v1"];
    assert!(server.kubectl(&both).contains("VERSION:    v1"));
}

#[test]
fn discovery_lists_every_resource() {
    let server = Server::start();
    let resources = server.kubectl(&["api-resources", "--no-headers"]);
    assert!(resources.lines().count() >= 65, "{resources}");
    let short = ["api-resources", "--api-group=apps", "--namespaced", "-o", "name"];
    assert_eq!(
        server.kubectl(&short),
        "controllerrevisions.apps\ndaemonsets.apps\ndeployments.apps\nreplicasets.apps\nstatefulsets.apps"
    );
    let in_all = server.kubectl(&["api-resources", "--categories=all", "-o", "name"]);
    assert!(in_all.contains("deployments.apps") && !in_all.contains("configmaps"), "{in_all}");
    let versions = server.kubectl(&["api-versions"]);
    assert!(versions.lines().any(|line| line == "apps/v1") && versions.ends_with("\nv1"), "{versions}");
    for name in ["deploy", "deployment", "deployments", "deployments.apps", "deployments.v1.apps"] {
        assert_eq!(server.kubectl(&["get", name]), "No resources found in default namespace.");
    }
}

#[test]
fn whoami_and_cluster_info_answer() {
    let server = Server::start();
    let who = server.kubectl(&["auth", "whoami"]);
    assert!(
        who.contains("kubernetes-admin") && who.contains("[system:masters system:authenticated]"),
        "{who}"
    );
    assert_eq!(server.kubectl(&["auth", "can-i", "create", "pods"]), "yes");
    let as_bob = server.refused(&["get", "configmaps", "--as=bob"], "");
    assert!(as_bob.contains("User \"bob\" cannot list resource \"configmaps\""), "{as_bob}");
    let list = server.kubectl(&["auth", "can-i", "--list"]);
    assert!(list.contains("*.*"), "{list}");
    let info = server.kubectl(&["cluster-info"]);
    assert!(info.contains("Kubernetes control plane") && info.contains("https://127.0.0.1:"), "{info}");
    assert!(server.kubectl(&["get", "--raw", "/readyz?verbose"]).ends_with("readyz check passed"));
    assert!(server.kubectl(&["get", "--raw", "/metrics"]).contains("# TYPE"));
    let path = "/api/v1/namespaces/default/configmaps";
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"raw"}}"#;
    server.with_input(&["create", "--raw", path, "-f", "-"], body);
    let deleted = server.kubectl(&["delete", "--raw", &format!("{path}/raw")]);
    assert!(deleted.contains("\"status\":\"Success\""), "{deleted}");
}
