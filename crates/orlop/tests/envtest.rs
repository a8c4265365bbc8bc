//! The folder that `orlop envtest` makes, used as controller-runtime's envtest does: flags are looked up in the help,
//! certificates are made beforehand, both programs are polled until they are healthy and stopped with SIGTERM.

mod support;

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Makes the folder of programs.
fn assets(folder: &Path) -> PathBuf {
    let assets = folder.join("assets");
    for _ in 0..2 {
        let made = orlop(&["envtest", &assets.display().to_string()]);
        assert!(made.status.success(), "{made:?}");
        assert!(text(&made.stdout).contains("KUBEBUILDER_ASSETS="), "{made:?}");
    }
    assets
}

fn orlop(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop")).args(arguments).output().expect("orlop runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns true if a program's help lists a flag at the beginning of a line.
fn has_flag(program: &Path, flag: &str) -> bool {
    let help = Command::new(program).arg("--help").output().expect("it runs");
    assert!(help.status.success(), "{help:?}");
    let wanted = format!("--{flag}");
    text(&help.stdout).lines().any(|line| line.split_whitespace().next() == Some(wanted.as_str()))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Writes a file with the mode that envtest gives keys.
fn write(path: &Path, content: &str) {
    use std::io::Write;
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o640).open(path).expect("a file");
    file.write_all(content.as_bytes()).expect("written");
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA")
}

/// A process that is stopped with SIGTERM.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[String]) -> Self {
        let started = Command::new(program).args(arguments).stdout(Stdio::null()).spawn();
        Self(started.expect("it starts"))
    }

    #[track_caller]
    fn stop(mut self) {
        Command::new("kill").arg(self.0.id().to_string()).status().expect("kill");
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a URL answers 200 to somebody without credentials who does not verify certificates.
#[track_caller]
fn wait_for(url: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let curl = Command::new("curl").args(["-skf", url]).output().expect("curl");
        if curl.status.success() {
            return;
        }
        assert!(Instant::now() < deadline, "{url}: {}", text(&curl.stderr));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn suite_of_envtest_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let assets = assets(folder.path());
    let (etcd, api_server) = (assets.join("etcd"), assets.join("kube-apiserver"));
    assert!(has_flag(&etcd, "unsafe-no-fsync"));
    assert!(!has_flag(&api_server, "insecure-port"), "envtest would pass it");

    let (etcd_port, port) = (free_port(), free_port());
    let etcd_url = format!("http://127.0.0.1:{etcd_port}");
    let etcd = Process::start(
        &etcd,
        &[
            format!("--advertise-client-urls={etcd_url}"),
            format!("--data-dir={}", folder.path().join("etcd").display()),
            format!("--listen-client-urls={etcd_url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
            "--unsafe-no-fsync=true".to_owned(),
        ],
    );
    wait_for(&format!("{etcd_url}/health"));

    let certificates = folder.path().join("certificates");
    fs::create_dir(&certificates).expect("a folder");
    let file = |name: &str| certificates.join(name);
    let (serving_ca, client_ca, signer) = (authority("serving"), authority("clients"), authority("signer"));
    let key = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let params = CertificateParams::new(names).expect("names");
    let serving = params.signed_by(&key, &serving_ca).expect("a certificate");
    write(&file("apiserver.crt"), &serving.pem());
    write(&file("apiserver.key"), &key.serialize_pem());
    // envtest passes the certificate of the key's CA as the public key.
    write(&file("sa-signer.crt"), &signer.pem());
    write(&file("sa-signer.key"), &signer.key().serialize_pem());
    write(&file("client-cert-auth-ca.crt"), &client_ca.pem());
    let path = |name: &str| file(name).display().to_string();
    let api_server = Process::start(
        &api_server,
        &[
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", certificates.display()),
            format!("--client-ca-file={}", path("client-cert-auth-ca.crt")),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers={etcd_url}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={}", path("sa-signer.crt")),
            format!("--service-account-signing-key-file={}", path("sa-signer.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ],
    );
    wait_for(&format!("https://127.0.0.1:{port}/healthz"));

    // A user of envtest: a certificate of its CA, in a group of the suite's choice.
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "default-envtest-user");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages.push(rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    let client_key = KeyPair::generate().expect("a key");
    let client = params.signed_by(&client_key, &client_ca).expect("a certificate");
    write(&file("client.crt"), &client.pem());
    write(&file("client.key"), &client_key.serialize_pem());
    write(&file("ca.crt"), &serving_ca.pem());
    let kubeconfig = file("kubeconfig");
    write(
        &kubeconfig,
        &serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster":
                {"server": format!("https://127.0.0.1:{port}"), "certificate-authority": path("ca.crt")}}],
            "users": [{"name": "u", "user":
                {"client-certificate": path("client.crt"), "client-key": path("client.key")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        })
        .to_string(),
    );
    let kubectl = |arguments: &[&str], input: &str| {
        let (success, output) = support::run_kubectl(&support::kubectl(), &kubeconfig, arguments, input, &[]);
        assert!(success, "kubectl {arguments:?}: {output}");
        output
    };
    assert!(kubectl(&["auth", "whoami"], "").contains("default-envtest-user"));
    kubectl(&["create", "namespace", "suite"], "");
    // No controller creates service accounts, and none is needed for a pod.
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
        "spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}"#;
    kubectl(&["-n", "suite", "create", "-f", "-"], pod);
    assert_eq!(kubectl(&["-n", "suite", "get", "serviceaccounts", "-o", "name"], ""), "");
    // No controller empties namespaces either.
    kubectl(&["delete", "namespace", "suite", "--wait=false"], "");
    let phase = kubectl(&["get", "namespace", "suite", "-o", "jsonpath={.status.phase}"], "");
    assert_eq!(phase, "Terminating");
    let address = kubectl(&["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"], "");
    assert_eq!(address, "10.0.0.1");
    kubectl(&["create", "serviceaccount", "robot"], "");
    let token = kubectl(&["create", "token", "robot"], "");
    let reviewed = kubectl(&["--token", &token, "auth", "whoami"], "");
    // kubectl prefers the certificate; the token itself is reviewed.
    assert!(reviewed.contains("envtest-user"), "{reviewed}");
    let review = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token}})
    .to_string();
    let review = kubectl(&["create", "-f", "-", "-o", "jsonpath={.status.user.username}"], &review);
    assert_eq!(review, "system:serviceaccount:default:robot");
    api_server.stop();
    etcd.stop();
}

#[test]
fn unknown_flag_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let assets = assets(folder.path());
    for (program, required) in [("kube-apiserver", "--etcd-servers=http://127.0.0.1:1"), ("etcd", "--name=n")]
    {
        let refused = Command::new(assets.join(program))
            .args([required, "--no-such-flag=1"])
            .current_dir(folder.path())
            .output()
            .expect("it runs");
        assert!(!refused.status.success());
        assert!(text(&refused.stderr).contains("--no-such-flag"), "{refused:?}");
    }
}

#[test]
fn folder_with_other_programs_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("etcd"), "#!/bin/sh\n").expect("a file");
    let refused = orlop(&["envtest", &folder.path().display().to_string()]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("is not a link"), "{refused:?}");
}

#[test]
fn serving_pair_is_made_and_version_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let api_server = assets(folder.path()).join("kube-apiserver");
    let printed = Command::new(&api_server).arg("--version").output().expect("it runs");
    let printed = text(&printed.stdout).trim().replace("Kubernetes ", "");
    let raw = Command::new(&api_server).arg("--version=raw").output().expect("it runs");
    assert!(text(&raw.stdout).starts_with("version.Info{Major:\"1\""), "{raw:?}");
    let required = "--etcd-servers=http://127.0.0.1:1".to_owned();
    let other = Command::new(&api_server).args([&required, "--version=v1.0.0"]).output().expect("it runs");
    assert!(text(&other.stderr).contains("must match major/minor/patch"), "{other:?}");

    let (port, certificates) = (free_port(), folder.path().join("certificates"));
    let version = format!("{printed}-mine");
    let api_server = Process::start(
        &api_server,
        &[
            required,
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", certificates.display()),
            format!("--version={version}"),
        ],
    );
    let url = format!("https://127.0.0.1:{port}");
    wait_for(&format!("{url}/healthz"));
    let trusted = certificates.join("apiserver.crt").display().to_string();
    let answer = Command::new("curl").args(["-sf", "--cacert", &trusted, &format!("{url}/version")]).output();
    let answer = answer.expect("curl");
    assert!(text(&answer.stdout).contains(&format!("\"gitVersion\": \"{version}\"")), "{answer:?}");
    assert!(certificates.join("apiserver.key").exists());
    api_server.stop();
}
