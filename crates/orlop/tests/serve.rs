//! Options of `orlop serve`: addresses, credentials, readiness, shutdown.

mod support;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use orlop_client::Kubeconfig;
use support::Server;

/// Sends one request in plain HTTP. Returns the status code and the body.
fn get(server: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let address = server.strip_prefix("http://").expect("a plain address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let authorization = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}\r\n")
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code"), body.to_owned())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the file").permissions().mode() & 0o777
}

#[test]
fn insecure_listener_requires_a_token() {
    let server = Server::start_with(&["--insecure-listen", "127.0.0.1:0"]);
    let url = server.ready()["insecureServer"].as_str().expect("the plain address").to_owned();
    let kubeconfig = PathBuf::from(server.ready()["kubeconfig"].as_str().expect("a kubeconfig"));
    let token_file = kubeconfig.with_file_name("pki").join("admin.token");
    assert_eq!((mode(&kubeconfig), mode(&token_file)), (0o600, 0o600));
    let token = fs::read_to_string(&token_file).expect("the token");
    assert!(!server.ready().to_string().contains(&token));

    let (code, body) = get(&url, "/api/v1/namespaces/default", None);
    assert_eq!(code, 403, "{body}");
    assert_eq!(get(&url, "/api/v1/namespaces/default", Some("wrong")).0, 401);
    assert_eq!(get(&url, "/api/v1/namespaces/default", Some(&token)).0, 200);
    assert_eq!(get(&url, "/readyz", None), (200, "ok".to_owned()));
    for context in ["orlop", "orlop-token"] {
        let who =
            server.kubectl(&["--context", context, "auth", "whoami", "-o", "jsonpath={.status.userInfo}"]);
        assert!(who.contains("kubernetes-admin") && who.contains("system:masters"), "{context}: {who}");
    }
}

#[test]
fn insecure_listener_must_be_loopback() {
    let refused = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["serve", "--ephemeral", "--insecure-listen", "0.0.0.0:8080"])
        .output()
        .expect("orlop runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("only a loopback address"), "{said}");
}

#[test]
fn help_lists_every_controller() {
    let orlop = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_orlop")).args(arguments).output().expect("orlop runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let refused = orlop(&["serve", "--ephemeral", "--controllers=nonsense"]);
    let names = refused.lines().find_map(|line| line.split_once("there are: ")).expect("the names").1;
    let words = orlop(&["serve", "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    for name in names.split(", ") {
        // The help refers to a page for the controllers of workloads.
        let page = include_str!("../../../docs/workloads.md");
        assert!(words.contains(name) || page.contains(name), "{name} is not in the help");
    }
    assert!(names.contains("garbage-collector-controller"), "{names}");
}

#[test]
fn deselected_controllers_can_run_by_kubeconfig() {
    let off = "--controllers=-garbage-collector-controller,-namespace-controller,-serviceaccount-controller,\
               -root-ca-certificate-publisher-controller";
    let server = Server::start_with(&[off]);
    server.kubectl(&["create", "namespace", "team"]);
    server.kubectl(&["-n", "team", "create", "configmap", "a"]);
    server.kubectl(&["delete", "namespace", "team", "--wait=false"]);
    assert_eq!(
        server.kubectl(&["-n", "team", "get", "serviceaccounts,configmaps", "-o", "name"]),
        "configmap/a"
    );

    // By kubeconfig, as against any cluster.
    let kubeconfig = server.ready()["kubeconfig"].as_str().expect("a kubeconfig").to_owned();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.spawn(async move {
        let kubeconfig = Kubeconfig::read_from(Path::new(&kubeconfig)).expect("a kubeconfig");
        let config = orlop_client::Config::of(&kubeconfig).expect("a configuration");
        let client = orlop_client::Client::connect(config).await.expect("a client");
        let all =
            orlop_controllers::select(&[], orlop_controllers::Defaults::ApiServer).expect("the default");
        let options =
            orlop_controllers::Options { root_ca: "the CA".to_owned().into(), ..Default::default() };
        orlop_controllers::run(client, &all, options).await;
    });
    server.eventually(&["get", "namespace", "team"], |said| said.contains("not found"));
    server.eventually(&["get", "serviceaccounts", "-o", "name"], |said| said == "serviceaccount/default");
    let trusted = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"];
    server.eventually(&trusted, |said| said == "the CA");
    runtime.shutdown_background();
}

#[test]
fn serving_certificate_and_token_file_are_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["api.example.org".to_owned()]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("a certificate");
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("tls.crt"), certificate.pem()).expect("written");
    fs::write(path("tls.key"), key.serialize_pem()).expect("written");
    fs::write(path("tokens"), "abc,robot,1,\"system:masters\"\n").expect("written");
    for secret in ["tls.key", "tokens"] {
        fs::set_permissions(path(secret), fs::Permissions::from_mode(0o644)).expect("readable by others");
        let refused = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["serve", "--ephemeral", "--tls-cert-file", &path("tls.crt"), "--tls-key-file"])
            .args([&path("tls.key"), "--token-auth-file", &path("tokens")])
            .output()
            .expect("orlop runs");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(&format!("chmod o= {}", path(secret))), "{said}");
        fs::set_permissions(path(secret), fs::Permissions::from_mode(0o640)).expect("private");
    }
    let server = Server::start_with(&[
        "--tls-cert-file",
        &path("tls.crt"),
        "--tls-key-file",
        &path("tls.key"),
        "--token-auth-file",
        &path("tokens"),
        "--kubeconfig",
        &path("kubeconfig"),
    ]);
    assert_eq!(server.ready()["kubeconfig"], path("kubeconfig"));
    assert_eq!(server.kubectl(&["get", "namespace", "default", "-o", "name"]), "namespace/default");
    let who =
        ["--context", "orlop-token", "--token", "abc", "auth", "whoami", "-o", "jsonpath={.status.userInfo}"];
    let who = server.kubectl(&who);
    assert!(who.contains("robot"), "{who}");

    // Half a pair changes nothing; a new pair is served without a restart, and the kubeconfig does not know it.
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(path("tls.crt"), certificate.pem()).expect("written");
    assert!(server.run(&["version"], "").0, "the key is not its: the old pair stays");
    fs::write(path("tls.key"), key.serialize_pem()).expect("written");
    server.eventually(&["version"], |said| said.contains("x509"));
    let any = [
        "--insecure-skip-tls-verify",
        "--certificate-authority=",
        "get",
        "namespace",
        "default",
        "-o",
        "name",
    ];
    assert_eq!(server.kubectl(&any), "namespace/default");
}

#[test]
fn data_ca_and_token_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut process = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", &data.display().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("orlop starts");
        let mut screen = String::new();
        let mut output = std::io::BufReader::new(process.stdout.take().expect("its output"));
        while !screen.contains("get namespaces") {
            assert_ne!(std::io::BufRead::read_line(&mut output, &mut screen).expect("a line"), 0, "{screen}");
        }
        let token = fs::read_to_string(data.join("pki/admin.token")).expect("a token");
        let shown = [
            "https://127.0.0.1:",
            "data/orlop.db",
            "data/kubeconfig",
            "data/pki/admin.token",
            "data/cluster.key",
        ];
        for part in shown {
            assert!(screen.contains(part), "{part} is not in:\n{screen}");
        }
        assert!(!screen.contains(&token), "the token is a secret");
        tokens.push((token, fs::read_to_string(data.join("pki/ca.crt")).expect("a CA")));
        Command::new("kill").arg(process.id().to_string()).status().expect("kill");
        assert!(process.wait().expect("it ends").success());
    }
    assert_eq!(tokens[0], tokens[1]);
}

#[test]
fn readyz_fails_during_the_shutdown_delay() {
    let mut server =
        Server::start_with(&["--insecure-listen", "127.0.0.1:0", "--shutdown-delay-duration", "3s"]);
    let url = server.ready()["insecureServer"].as_str().expect("the plain address").to_owned();
    let kubeconfig = PathBuf::from(server.ready()["kubeconfig"].as_str().expect("a kubeconfig"));
    let token_file = kubeconfig.with_file_name("pki").join("admin.token");
    let token = fs::read_to_string(&token_file).expect("the token");
    let (code, checks) = get(&url, "/readyz?verbose", None);
    assert_eq!(code, 200);
    for check in [
        "ping",
        "log",
        "etcd",
        "etcd-readiness",
        "poststarthook/bootstrap-controller",
        "poststarthook/crd-informer-synced",
        "shutdown",
    ] {
        assert!(checks.contains(&format!("[+]{check} ok\n")), "{checks}");
        // Single checks are for who may read them.
        assert_eq!(get(&url, &format!("/readyz/{check}"), None).0, 403);
        assert_eq!(get(&url, &format!("/readyz/{check}"), Some(&token)), (200, "ok".to_owned()));
    }
    assert!(checks.ends_with("readyz check passed\n"), "{checks}");
    let id = server.process().id().to_string();
    Command::new("kill").arg(&id).status().expect("kill");
    let deadline = Instant::now() + Duration::from_secs(2);
    let said = loop {
        let (code, said) = get(&url, "/readyz", None);
        if code == 500 {
            break said;
        }
        assert!(Instant::now() < deadline, "still ready");
    };
    assert!(said.contains("[-]shutdown failed: reason withheld\nreadyz check failed\n"), "{said}");
    assert_eq!(get(&url, "/livez", None), (200, "ok".to_owned()));
    assert_eq!(get(&url, "/readyz?exclude=shutdown", None), (200, "ok".to_owned()));
    let (code, one) = get(&url, "/readyz/shutdown", Some(&token));
    assert!(code == 500 && one.starts_with("internal server error: "), "{one}");
    assert!(server.process().wait().expect("it ends").success());
}

#[test]
fn services_are_allocated_from_the_given_ranges() {
    let ranges = ["--service-cluster-ip-range", "10.96.0.0/12", "--service-node-port-range", "30100-30101"];
    let server = Server::start_with(&ranges);
    let address = |name: &str| server.kubectl(&["get", "service", name, "-o", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(address("kubernetes"), "10.96.0.1");
    let cidrs = server.kubectl(&["get", "servicecidr", "kubernetes", "-o", "jsonpath={.spec.cidrs[0]}"]);
    assert_eq!(cidrs, "10.96.0.0/12");
    server.kubectl(&["create", "service", "clusterip", "fixed", "--clusterip", "10.100.0.10", "--tcp", "80"]);
    assert_eq!(address("fixed"), "10.100.0.10");
    let refused = server
        .refused(&["create", "service", "clusterip", "x", "--clusterip", "10.0.0.9", "--tcp", "80"], "");
    assert!(refused.contains("the provided network does not match the current range"), "{refused}");
    let mut ports = ["a", "b"].map(|name| {
        server.kubectl(&["create", "service", "nodeport", name, "--tcp", "80"]);
        server.kubectl(&["get", "service", name, "-o", "jsonpath={.spec.ports[0].nodePort}"])
    });
    ports.sort();
    assert_eq!(ports, ["30100", "30101"]);
    server.refused(&["create", "service", "nodeport", "c", "--tcp", "80"], "");

    let refused = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["serve", "--ephemeral", "--service-cluster-ip-range", "10.96.0.1/12"])
        .output()
        .expect("orlop runs");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not an IP range"));
}

#[test]
fn bad_authentication_options_are_refused_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("restricted");
        path.to_str().expect("a path").to_owned()
    };
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let unknown = file("unknown.yaml", &format!("{head}jwts: []\n"));
    let invalid =
        file("invalid.yaml", &format!("{head}jwt: [{{issuer: {{url: 'http://a', audiences: [x]}}}}]\n"));
    let anonymous = file("anonymous.yaml", &format!("{head}anonymous: {{enabled: true}}\n"));
    let nonsense = file("nonsense", "nonsense");
    for (options, why) in [
        (vec!["--authentication-config", &unknown], "unknown field \"jwts\""),
        (vec!["--authentication-config", &invalid], "URL scheme must be https"),
        (
            vec!["--authentication-config", &anonymous, "--anonymous-auth=false"],
            "--anonymous-auth flag cannot be set",
        ),
        (vec!["--authentication-config", "/missing"], "No such file"),
        (vec!["--token-auth-file", &nonsense], "must have at least 3 columns"),
        (vec!["--client-ca-file", &nonsense], "contains no certificate"),
        (vec!["--service-account-signing-key-file", &nonsense], "private key"),
        (
            vec!["--service-account-key-file", &nonsense],
            "does not contain any valid RSA or ECDSA public keys",
        ),
        (vec!["--service-account-issuer", "a", "--service-account-issuer", "a"], "is already specified"),
        (vec!["--service-account-max-token-expiration", "10m"], "between 1 hour and 2^32 seconds"),
        (vec!["--authentication-token-webhook-config-file", &nonsense], "not a kubeconfig"),
        (vec!["--oidc-issuer-url", "https://a"], "--oidc-client-id"),
        (vec!["--oidc-issuer-url", "http://a", "--oidc-client-id", "x"], "URL scheme must be https"),
        (
            vec!["--oidc-issuer-url", "https://a", "--oidc-client-id", "x", "--oidc-signing-algs", "none"],
            "unsupported signing alg: \"none\"",
        ),
        (
            vec!["--requestheader-client-ca-file", &nonsense, "--requestheader-allowed-names", "x"],
            "no certificate",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["serve", "--ephemeral"])
            .args(&options)
            .output()
            .expect("orlop runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{options:?}: {said}");
    }
}

/// Runs a command line that must fail. Returns what it says.
#[track_caller]
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .expect("orlop runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn options_of_a_node_are_refused_where_they_mean_nothing() {
    let said = refused(&["serve", "--ephemeral", "--image", "web=/bin/sh"], &[]);
    assert!(said.contains("--image is about the node of this process: add --node"), "{said}");
    let said = refused(&["serve", "--ephemeral", "--node", "--images", "/nonexistent"], &[]);
    assert!(said.contains("--images /nonexistent") && said.contains("No such file"), "{said}");
}

#[test]
fn server_ends_with_the_error_of_its_node() {
    // Networks of pods need root, and the program ip.
    let options = ["serve", "--ephemeral", "--node", "--pod-network", "own"];
    let said = refused(&options, &[("PATH", "/nonexistent")]);
    assert!(said.contains("pods cannot have networks of their own on this machine"), "{said}");
}

#[test]
fn address_in_use_names_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let said = refused(&["serve", "--ephemeral", "--listen", &address], &[]);
    assert!(said.contains(&format!("cannot listen on {address} (--listen)")), "{said}");
}

#[test]
fn missing_kubeconfig_is_named() {
    for command in ["node", "controllers"] {
        let said = refused(&[command, "--kubeconfig", "/nonexistent"], &[("RUST_BACKTRACE", "0")]);
        assert!(said.contains("cannot read /nonexistent"), "{said}");
        assert!(!said.contains("pass --kubeconfig"), "{said}");
    }
}

#[test]
fn output_without_a_reader_is_no_panic() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["compose", "manifests", "--image", "registry.example.com/orlop:1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("orlop runs");
    drop(process.stdout.take());
    let output = process.wait_with_output().expect("it ends");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
