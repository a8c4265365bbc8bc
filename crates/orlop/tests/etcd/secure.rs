//! TLS, client certificates, unix sockets, HTTP endpoints.

use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::process::Orlop;

/// Writes a CA, a serving certificate for 127.0.0.1, a client certificate, and a client certificate of another CA.
fn certificates(folder: &Path) {
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).unwrap();
        std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).unwrap();
    };
    for (ca, names) in [("ca", &["server", "client"][..]), ("strange-ca", &["stranger"])] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        write(&format!("{ca}.crt"), params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        for name in names {
            let key = KeyPair::generate().unwrap();
            let mut params =
                CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            write(&format!("{name}.crt"), params.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
    }
}

#[test]
fn clients_without_a_trusted_certificate_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let orlop = Orlop::start(&[
        "--endpoint",
        "memory",
        "--server-cert-file",
        &certificate,
        "--server-key-file",
        &key,
        "--trusted-ca-file",
        &ca,
    ]);
    assert!(orlop.url.starts_with("https://"), "{}", orlop.url);
    let trusting = orlop.ctl().with(format!("--cacert={ca}"));
    let with = |name: &str| {
        trusting
            .clone()
            .with(format!("--cert={}", file(&format!("{name}.crt"))))
            .with(format!("--key={}", file(&format!("{name}.key"))))
    };
    assert_eq!(with("client").ok(&["put", "k", "v"]), "OK\n");
    for untrusted in [trusting.clone(), with("stranger")] {
        let mut command = untrusted
            .with("--dial-timeout=1s".into())
            .with("--command-timeout=2s".into())
            .command(&["get", "k"]);
        assert!(!command.output().unwrap().status.success());
    }
    assert_eq!(with("client").ok(&["get", "k"]), "k\nv\n");
}

#[test]
fn address_reachable_by_others_requires_tls() {
    let listen = |extra: &[&str]| {
        let mut command = Command::new(crate::process::ORLOP);
        command.args(["etcd", "--endpoint", "memory", "--listen-address", "0.0.0.0:0"]);
        command.args(extra);
        command
    };
    let output = listen(&[]).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--server-cert-file") && error.contains("--allow-plaintext"), "{error}");
    let orlop = Orlop::start(&["--endpoint", "memory", "--listen-address", "0.0.0.0:0", "--allow-plaintext"]);
    assert!(orlop.url.starts_with("http://0.0.0.0:"), "{}", orlop.url);
}

#[test]
fn unix_socket_is_served_and_removed_at_exit() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("etcd.sock");
    let address = format!("unix://{}", socket.display());
    let orlop = Orlop::start(&["--endpoint", "memory", "--listen-address", &address]);
    assert_eq!(orlop.url, address);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(orlop.ctl().ok(&["put", "k", "v"]), "OK\n");
    orlop.kill();
    assert!(socket.exists(), "a killed server leaves its file");
    let orlop = Orlop::start(&["--endpoint", "memory", "--listen-address", &address]);
    assert_eq!(orlop.ctl().ok(&["put", "k", "v"]), "OK\n");
    assert!(orlop.stop());
    assert!(!socket.exists());
}

#[test]
fn health_metrics_and_version_are_served_over_http() {
    let orlop = Orlop::start(&["--endpoint", "memory"]);
    let get = |path: &str| {
        let output = Command::new("curl").args(["-sf", &format!("{}{path}", orlop.url)]).output().unwrap();
        assert!(output.status.success(), "{path}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(get("/health"), r#"{"health":"true","reason":""}"#);
    let version: serde_json::Value = serde_json::from_str(&get("/version")).unwrap();
    assert_eq!((&version["etcdserver"], &version["etcdcluster"]), (&"3.6.11".into(), &"3.6.0".into()));
    orlop.ctl().ok(&["put", "k", "v"]);
    let metrics = get("/metrics");
    assert!(
        metrics.contains("kine_sql_total{name=\"commit\"") && metrics.contains("orlop_store_revision 2"),
        "{metrics}"
    );
}
