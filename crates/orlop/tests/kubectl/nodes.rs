//! Nodes that only exist as objects: cordon, taint, drain.

use crate::support::Server;

#[test]
fn nodes_are_cordoned_tainted_and_drained() {
    let server = Server::start();
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: \"True\"}]}\n";
    server.with_input(&["create", "-f", "-"], node);
    assert!(server.kubectl(&["get", "nodes", "--no-headers"]).contains("Ready"));
    server.kubectl(&["taint", "nodes", "n1", "key=value:NoSchedule"]);
    server.kubectl(&["taint", "nodes", "n1", "key:NoSchedule-"]);
    assert_eq!(server.kubectl(&["cordon", "n1"]), "node/n1 cordoned");
    assert!(server.kubectl(&["get", "nodes", "--no-headers"]).contains("Ready,SchedulingDisabled"));
    let by_field = ["get", "nodes", "--field-selector=spec.unschedulable=true", "-o", "name"];
    assert_eq!(server.kubectl(&by_field), "node/n1");

    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: n1, containers: [{name: c, image: i}]}\n";
    server.with_input(&["create", "-f", "-"], pod);
    let lonely = server.refused(&["drain", "n1"], "");
    assert!(lonely.contains("cannot delete Pods that declare no controller"), "{lonely}");
    // The part of the kubelet: confirm that the pod has stopped.
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| server.kubectl(&["drain", "n1", "--force", "--timeout=20s"]));
        let asked = ["get", "pod", "p", "-o", "jsonpath={.metadata.deletionTimestamp}"];
        server.eventually(&asked, |output| !output.is_empty());
        server.kubectl(&["delete", "pod", "p", "--grace-period=0", "--force"]);
        let said = drained.join().expect("kubectl");
        assert!(said.contains("evicting pod default/p") && said.contains("node/n1 drained"), "{said}");
    });
    assert_eq!(server.kubectl(&["uncordon", "n1"]), "node/n1 uncordoned");
}
