//! Every kind that kubectl has a generator for, and operations that need nodes.

use crate::support::Server;

#[test]
fn kubectl_create_generates_every_kind() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let made = rcgen::generate_simple_self_signed(["example.com".to_owned()]).expect("a certificate");
    std::fs::write(&certificate, made.cert.pem()).expect("a certificate");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a key");
    let (certificate, key) =
        (format!("--cert={}", certificate.display()), format!("--key={}", key.display()));
    let creations: &[(&[&str], &str)] = &[
        (&["namespace", "n"], "namespace/n"),
        (&["configmap", "c", "--from-literal=a=b"], "configmap/c"),
        (&["secret", "generic", "s", "--from-literal=a=b"], "secret/s"),
        (&["secret", "tls", "t", &certificate, &key], "secret/t"),
        (&["secret", "docker-registry", "r", "--docker-username=u", "--docker-password=p"], "secret/r"),
        (&["serviceaccount", "a"], "serviceaccount/a"),
        (
            &["clusterrole", "r", "--verb=get,list", "--resource=pods"],
            "clusterrole.rbac.authorization.k8s.io/r",
        ),
        (
            &["clusterrolebinding", "b", "--clusterrole=r", "--user=u"],
            "clusterrolebinding.rbac.authorization.k8s.io/b",
        ),
        (
            &["role", "r", "--verb=get", "--resource=pods", "--resource-name=x"],
            "role.rbac.authorization.k8s.io/r",
        ),
        (
            &["rolebinding", "b", "--role=r", "--serviceaccount=default:a"],
            "rolebinding.rbac.authorization.k8s.io/b",
        ),
        (&["deployment", "d", "--image=a", "--image=b", "--port=80"], "deployment.apps/d"),
        (&["cronjob", "j", "--image=i", "--schedule=*/5 * * * *", "--", "date"], "cronjob.batch/j"),
        (&["job", "one", "--image=i", "--", "true"], "job.batch/one"),
        (&["job", "two", "--from=cronjob/j"], "job.batch/two"),
        (&["ingress", "i", "--rule=example.com/a*=s:80,tls=t"], "ingress.networking.k8s.io/i"),
        (
            &["poddisruptionbudget", "p", "--selector=a=b", "--min-available=50%"],
            "poddisruptionbudget.policy/p",
        ),
        (
            &["priorityclass", "p", "--value=10", "--preemption-policy=Never"],
            "priorityclass.scheduling.k8s.io/p",
        ),
        (&["quota", "q", "--hard=pods=3,cpu=1", "--scopes=NotTerminating"], "resourcequota/q"),
        (&["service", "clusterip", "ip", "--tcp=80:8080"], "service/ip"),
        (&["service", "clusterip", "headless", "--clusterip=None"], "service/headless"),
        (&["service", "nodeport", "port", "--tcp=80", "--node-port=30123"], "service/port"),
        (&["service", "loadbalancer", "balanced", "--tcp=80"], "service/balanced"),
        (&["service", "externalname", "outside", "--external-name=example.com"], "service/outside"),
    ];
    for (arguments, name) in creations {
        // A server-side dry run first: it must write nothing.
        let dry = [&["create"][..], *arguments].concat();
        let (before, after) = match dry.iter().position(|argument| *argument == "--") {
            Some(at) => dry.split_at(at),
            None => (&dry[..], &[][..]),
        };
        let said = server.kubectl(&[before, &["--dry-run=server", "-o", "name"], after].concat());
        // Warnings may follow.
        assert_eq!(said.lines().next(), Some(*name));
        let said = server.kubectl(&dry);
        assert!(said.starts_with(&format!("{name} created")), "{said}");
    }
    assert_eq!(
        server.kubectl(&["get", "job", "two", "-o", "jsonpath={.metadata.ownerReferences[0].kind}"]),
        "CronJob"
    );
    server.kubectl(&["expose", "deployment", "d", "--port=80", "--type=NodePort"]);
    let ports = ["get", "service", "d", "-o", "jsonpath={.spec.ports[0].port} {.spec.selector.app}"];
    assert_eq!(server.kubectl(&ports), "80 d");
    let taken = ["create", "service", "nodeport", "again", "--tcp=80", "--node-port=30123"];
    let said = server.refused(&taken, "");
    assert!(said.contains("provided port is already allocated"), "{said}");
    let certificate = "wrong";
    let said = server.refused(
        &["create", "secret", "generic", "w", "--type=kubernetes.io/tls", "--from-literal=tls.crt=x"],
        certificate,
    );
    assert!(said.contains("data[tls.key]: Required value"), "{said}");
}

#[test]
fn logs_and_exec_of_unscheduled_pods_are_refused() {
    let server = Server::start();
    let dry = ["run", "p", "--image=nginx", "--dry-run=server", "-o", "jsonpath={.spec.restartPolicy}"];
    assert_eq!(server.kubectl(&dry), "Always");
    server.kubectl(&["run", "p", "--image=nginx", "--port=80", "--labels=a=b", "--env=X=Y", "--expose"]);
    let table = server.kubectl(&["get", "pod", "p", "--no-headers"]);
    assert_eq!(table.split_whitespace().take(4).collect::<Vec<_>>(), ["p", "0/1", "Pending", "0"]);
    assert_eq!(server.kubectl(&["logs", "p"]), "");
    let host = "Error from server (BadRequest): pod p does not have a host assigned";
    assert_eq!(server.refused(&["exec", "p", "--", "ls"], ""), host);
    assert_eq!(server.refused(&["cp", "p:/a", "/tmp/a"], ""), host);
    assert!(server.refused(&["attach", "p"], "").ends_with(host));
    let forward = server.refused(&["port-forward", "p", "9999:80"], "");
    assert_eq!(forward, "error: unable to forward port because pod is not running. Current status=Pending");
    assert_eq!(server.refused(&["top", "pods"], ""), "error: Metrics API not available");
    let debug = ["debug", "p", "--image=busybox", "--profile=general", "-c", "look", "--attach=false"];
    server.kubectl(&debug);
    let containers = ["get", "pod", "p", "-o", "jsonpath={.spec.ephemeralContainers[*].name}"];
    assert_eq!(server.kubectl(&containers), "look");
    let said = server.refused(&["patch", "pod", "p", "-p", r#"{"spec":{"hostname":"x"}}"#], "");
    assert!(said.contains("spec: Forbidden: pod updates may not change fields other than"), "{said}");
}

#[test]
fn certificate_signing_requests_are_approved_and_denied() {
    let server = Server::start();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    let request = parameters.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    for (name, verb) in [("good", "approve"), ("bad", "deny")] {
        let yaml = format!(
            "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec: \
             {{request: {}, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}}\n",
            base64(&request)
        );
        server.with_input(&["create", "-f", "-"], &yaml);
        let said = server.kubectl(&["certificate", verb, name]);
        assert!(said.starts_with("certificatesigningrequest.certificates.k8s.io/"), "{said}");
    }
    let condition = |name: &str| {
        let table = server.kubectl(&["get", "csr", name, "--no-headers"]);
        table.split_whitespace().last().map(str::to_owned)
    };
    // The signer may have been quick.
    assert!(condition("good").is_some_and(|condition| condition.starts_with("Approved")));
    assert_eq!(condition("bad").as_deref(), Some("Denied"));
    let who = ["get", "csr", "good", "-o", "jsonpath={.spec.username} {.spec.groups[0]}"];
    assert_eq!(server.kubectl(&who), "kubernetes-admin system:masters");
}

/// Encodes base64: no crate for it is among the dependencies of this test.
pub(crate) fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| -> String {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let letter = |at: usize| char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]);
        (0..4).map(|at| if at <= chunk.len() { letter(at) } else { '=' }).collect()
    };
    text.as_bytes().chunks(3).map(encode).collect()
}
