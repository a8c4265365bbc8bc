//! `kubectl delete` and `kubectl wait`.

use crate::support::Server;

fn names(server: &Server, kind: &str) -> String {
    server.kubectl(&["get", kind, "-o", "name"]).replace('\n', " ")
}

#[test]
fn delete_by_name_label_file_and_all() {
    let server = Server::start();
    for name in ["a", "b", "c", "d", "e"] {
        server.kubectl(&["create", "secret", "generic", name]);
    }
    server.kubectl(&["label", "secret", "b", "c", "gone=1"]);
    assert_eq!(server.kubectl(&["delete", "secret", "a"]), "secret \"a\" deleted");
    let dry = ["delete", "secret", "d", "--dry-run=server"];
    assert_eq!(server.kubectl(&dry), "secret \"d\" deleted (server dry run)");
    server.kubectl(&["delete", "secret", "-l", "gone=1"]);
    server.with_input(&["delete", "-f", "-"], "apiVersion: v1\nkind: Secret\nmetadata: {name: d}\n");
    assert_eq!(names(&server, "secrets"), "secret/e");
    server.kubectl(&["delete", "secrets", "--all"]);
    assert_eq!(names(&server, "secrets"), "");
    let missing = server.refused(&["delete", "secret", "a"], "");
    assert_eq!(missing, "Error from server (NotFound): secrets \"a\" not found");
    assert_eq!(server.kubectl(&["delete", "secret", "a", "--ignore-not-found"]), "");
}

#[test]
fn finalizers_block_deletion() {
    let server = Server::start();
    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n";
    server.with_input(&["create", "-f", "-"], held);
    let late = server.refused(&["delete", "configmap", "held", "--timeout=100ms"], "");
    assert!(late.contains("timed out waiting for the condition on configmaps/held"), "{late}");
    let add = r#"[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/more"}]"#;
    let refused = server.refused(&["patch", "configmap", "held", "--type=json", "-p", add], "");
    assert!(
        refused.contains(
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
             found new finalizers []string{\"example.com/more\"}"
        ),
        "{refused}"
    );
    let waiting = ["wait", "--for=delete", "configmap/held", "--timeout=20s"];
    std::thread::scope(|scope| {
        // kubectl prints nothing if the object was deleted already.
        let waited = scope.spawn(|| server.kubectl(&waiting));
        let remove = r#"{"metadata":{"finalizers":null}}"#;
        server.kubectl(&["patch", "configmap", "held", "--type=merge", "-p", remove]);
        let said = waited.join().expect("kubectl");
        assert!(matches!(said.as_str(), "" | "configmap/held condition met"), "{said}");
    });
    assert!(!names(&server, "configmaps").contains("held"));
}

#[test]
fn pod_deletion_honours_grace_period() {
    let server = Server::start();
    let pod = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}\n"
        )
    };
    server.with_input(&["create", "-f", "-"], &(pod("a") + "---\n" + &pod("b")));
    // A scheduled pod waits for its node to confirm that it has stopped.
    server.kubectl(&["delete", "pod", "a", "--wait=false"]);
    let grace = ["get", "pod", "a", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}"];
    assert_eq!(server.kubectl(&grace), "30");
    let table = server.kubectl(&["get", "pod", "a", "--no-headers"]);
    assert!(table.contains("Terminating"), "{table}");
    server.kubectl(&["delete", "pod", "a", "--grace-period=5", "--wait=false"]);
    assert_eq!(server.kubectl(&grace), "5");
    let now = server.kubectl(&["delete", "pod", "a", "b", "--grace-period=0", "--force"]);
    assert!(now.contains("pod \"a\" force deleted") && now.contains("pod \"b\" force deleted"), "{now}");
    // An unscheduled pod is deleted at once.
    server.kubectl(&["run", "c", "--image=i"]);
    assert_eq!(server.kubectl(&["delete", "pod", "c"]), "pod \"c\" deleted");
    assert_eq!(names(&server, "pods"), "");
}

#[test]
fn kubectl_wait_for_fields_and_creation() {
    let server = Server::start();
    let phase = ["wait", "--for=jsonpath={.status.phase}=Running", "pod/a", "--timeout=20s"];
    let patch = r#"{"status":{"phase":"Running"}}"#;
    std::thread::scope(|scope| {
        let created = scope.spawn(|| server.kubectl(&["wait", "--for=create", "pod/a", "--timeout=20s"]));
        server.kubectl(&["run", "a", "--image=i"]);
        assert_eq!(created.join().expect("kubectl"), "pod/a condition met");
        let running = scope.spawn(|| server.kubectl(&phase));
        server.kubectl(&["patch", "pod", "a", "--subresource=status", "--type=merge", "-p", patch]);
        assert_eq!(running.join().expect("kubectl"), "pod/a condition met");
    });
    let never = ["wait", "--for=condition=Ready", "pod/a", "--timeout=100ms"];
    assert_eq!(server.refused(&never, ""), "error: timed out waiting for the condition on pods/a");
}
