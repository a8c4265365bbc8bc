//! Limits, quotas, pod security and priorities, as kubectl shows them.

use crate::support::Server;

#[test]
fn quotas_are_described_and_enforced() {
    let server = Server::start();
    server.kubectl(&["create", "quota", "q", "--hard=count/configmaps=2,pods=1"]);
    // One is the cluster's CA, which every namespace has.
    server.eventually(&["describe", "quota", "q"], |output| {
        output.lines().any(|line| line.split_whitespace().eq(["count/configmaps", "1", "2"]))
    });
    server.kubectl(&["create", "configmap", "a"]);
    let refused = server.refused(&["create", "configmap", "b"], "");
    let expected = "configmaps \"b\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
                    count/configmaps=2, limited: count/configmaps=2";
    assert!(refused.contains(expected), "{refused}");
    server.kubectl(&["delete", "configmap", "a"]);
    server.eventually(&["create", "configmap", "b"], |output| output.contains("configmap/b created"));
    server.kubectl(&["run", "one", "--image=i"]);
    let refused = server.refused(&["run", "two", "--image=i"], "");
    assert!(
        refused.contains("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"),
        "{refused}"
    );
    server.kubectl(&["delete", "pod", "one", "--force", "--grace-period=0"]);
    server.eventually(&["run", "two", "--image=i"], |output| output.contains("pod/two created"));
}

#[test]
fn limits_are_described_and_defaulted() {
    let server = Server::start();
    let range = "---\n{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, \
                 default: {cpu: 500m}, defaultRequest: {cpu: 100m}, max: {cpu: '1'}}]}}";
    server.with_input(&["create", "-f", "-"], range);
    let described = server.kubectl(&["describe", "limits", "l"]);
    assert!(
        described.lines().any(|line| line.split_whitespace().eq([
            "Container",
            "cpu",
            "-",
            "1",
            "100m",
            "500m",
            "-"
        ])),
        "{described}"
    );
    server.kubectl(&["run", "p", "--image=i"]);
    let resources = server.kubectl(&["get", "pod", "p", "-o", "jsonpath={.spec.containers[0].resources}"]);
    assert_eq!(resources.trim(), r#"{"limits":{"cpu":"500m"},"requests":{"cpu":"100m"}}"#);
    let large = "---\n{apiVersion: v1, kind: Pod, metadata: {name: q}, spec: {containers: [{name: c, image: i, \
                 resources: {limits: {cpu: '2'}}}]}}";
    let refused = server.refused(&["create", "-f", "-"], large);
    assert!(refused.contains("maximum cpu usage per Container is 1, but limit is 2"), "{refused}");
}

#[test]
fn pod_security_refuses_pods_and_warns_of_templates() {
    let server = Server::start();
    server.kubectl(&["label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted"]);
    let refused = server.refused(&["run", "p", "--image=i"], "");
    assert!(
        refused.contains("pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\""),
        "{refused}"
    );
    let (created, output) = server.run(&["create", "deployment", "d", "--image=i"], "");
    assert!(created, "{output}");
    assert!(output.contains("Warning: would violate PodSecurity \"restricted:latest\""), "{output}");
    let label = ["label", "namespace", "default", "pod-security.kubernetes.io/enforce=lax", "--overwrite"];
    let refused = server.refused(&label, "");
    assert!(refused.contains("must be one of privileged, baseline, restricted"), "{refused}");
}

#[test]
fn pods_have_the_priority_of_their_class_and_the_token_of_their_account() {
    let server = Server::start();
    server.kubectl(&["create", "priorityclass", "high", "--value=1000", "--preemption-policy=Never"]);
    let overrides = r#"--overrides={"spec": {"priorityClassName": "high"}}"#;
    server.kubectl(&["run", "p", "--image=i", overrides]);
    let described = server.kubectl(&["describe", "pod", "p"]);
    let has =
        |words: &[&str]| described.lines().any(|line| line.split_whitespace().eq(words.iter().copied()));
    assert!(has(&["Priority:", "1000"]) && has(&["Priority", "Class", "Name:", "high"]), "{described}");
    assert!(has(&["Service", "Account:", "default"]), "{described}");
    assert!(
        described.contains("/var/run/secrets/kubernetes.io/serviceaccount from kube-api-access-"),
        "{described}"
    );
    let overrides = r#"--overrides={"spec": {"priorityClassName": "none"}}"#;
    let refused = server.refused(&["run", "q", "--image=i", overrides], "");
    assert!(refused.contains("no PriorityClass with name none was found"), "{refused}");
}
