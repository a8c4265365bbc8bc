//! The data directory: permissions, damaged and missing files, one server at a time.

mod support;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use support::daemon::Daemon;

const WHOAMI: [&str; 4] = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];

/// Returns every file and directory below a path, with its mode.
fn modes(path: &Path) -> Vec<(PathBuf, u32)> {
    let mut found =
        vec![(path.to_owned(), fs::metadata(path).expect("it exists").permissions().mode() & 0o777)];
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            found.extend(modes(&entry.expect("an entry").path()));
        }
    }
    found
}

#[track_caller]
fn assert_private(path: &Path) {
    for (path, mode) in modes(path) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

#[test]
fn every_file_of_a_fresh_data_directory_is_private_under_umask_0() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("nested/data");
    let server = Daemon::start(&data, &[]);
    server.kubectl(&["create", "configmap", "a"]);
    for name in ["orlop.db", "orlop.db-wal", "cluster.key", "kubeconfig", "pki/admin.token", "pki/ca.crt"] {
        assert!(data.join(name).exists(), "{name}");
    }
    // kubectl's own files are beside the kubeconfig.
    let _ = fs::remove_dir_all(data.join("kubeconfig.cache"));
    assert_private(&folder.path().join("nested"));
    server.stop();
}

/// Runs a front on a SQLite file under umask 0 until the file exists, and checks every file of the folder.
fn front_is_private(arguments: impl Fn(&Path) -> Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    fs::set_permissions(data, Permissions::from_mode(0o700)).expect("private");
    let mut process = Command::new("sh")
        .args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_orlop")])
        .args(arguments(data))
        .stdout(Stdio::null())
        .spawn()
        .expect("orlop starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !data.join("state.db-wal").exists() {
        assert!(Instant::now() < deadline && process.try_wait().expect("its state").is_none(), "it runs");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_private(data);
    process.kill().expect("killed");
    process.wait().expect("it ends");
}

#[test]
fn every_file_of_a_fresh_etcd_database_is_private_under_umask_0() {
    front_is_private(|data| {
        let endpoint = format!("sqlite://{}", data.join("state.db").display());
        ["etcd", "--listen-address", "127.0.0.1:0", "--endpoint", &endpoint].map(str::to_owned).to_vec()
    });
}

#[test]
fn every_file_of_a_fresh_device_database_is_private_under_umask_0() {
    let sockets = tempfile::tempdir().expect("a folder");
    let socket = format!("unix://{}", sockets.path().join("d.sock").display());
    front_is_private(|data| {
        let storage = format!("sqlite://{}", data.join("state.db").display());
        let none = ["--metrics-bind-address", "none", "--health-probe-bind-address", "none"];
        let arguments = ["device", "serve", "--bind-address", &socket, "--storage-endpoint", &storage];
        arguments.iter().chain(&none).map(|argument| (*argument).to_owned()).collect()
    });
}

#[test]
fn an_existing_data_directory_is_restricted_to_its_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    Daemon::start(&data, &[]).stop();
    for (path, _) in modes(&data) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("opened up");
    }
    Daemon::start(&data, &[]).stop();
    assert_private(&data);
}

#[test]
fn permissions_of_a_directory_with_other_peoples_files_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("of-another"), "").expect("written");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("opened up");
    let server = Daemon::start(folder.path(), &[]);
    assert_eq!(fs::metadata(folder.path()).expect("it exists").permissions().mode() & 0o777, 0o755);
    assert_private(&folder.path().join("cluster.key"));
    server.stop();
}

#[test]
fn a_second_server_on_one_data_directory_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Daemon::start(folder.path(), &[]);
    let kubeconfig = read(&first.kubeconfig());
    let said = Daemon::refused(folder.path(), &[]);
    assert!(
        said.contains("in use by another orlop serve") && said.contains(&first.id().to_string()),
        "{said}"
    );
    assert_eq!(read(&first.kubeconfig()), kubeconfig);
    assert_eq!(first.kubectl(&["get", "namespace", "default", "-o", "name"]), "namespace/default");
    // A kill releases the lock.
    first.kill();
    Daemon::start(folder.path(), &[]).stop();
}

#[test]
fn the_kubeconfig_is_written_only_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let listen = ["--listen", &port.to_string()];
    let inode = || fs::metadata(&path).expect("a kubeconfig").ino();
    Daemon::start(folder.path(), &listen).stop();
    let (first, text) = (inode(), read(&path));
    assert!(text.contains("client-key-data"));
    Daemon::start(folder.path(), &listen).stop();
    assert_eq!((inode(), &read(&path)), (first, &text), "the same file with the same certificate");
    // At another address it is another kubeconfig, still with the same certificate.
    let moved = Daemon::start(folder.path(), &[]);
    let line = |text: &str, field: &str| text.lines().find(|line| line.contains(field)).map(str::to_owned);
    let now = read(&path);
    assert_ne!(line(&now, "server:"), line(&text, "server:"));
    assert_eq!(line(&now, "client-certificate-data:"), line(&text, "client-certificate-data:"));
    assert_eq!(moved.kubectl(&["get", "namespace", "default", "-o", "name"]), "namespace/default");
    // A damaged one is written anew.
    moved.stop();
    fs::write(&path, now.replace("client-key-data: ", "client-key-data: x")).expect("damaged");
    let server = Daemon::start(folder.path(), &[]);
    assert_eq!(server.kubectl(&["get", "namespace", "default", "-o", "name"]), "namespace/default");
}

#[test]
fn damaged_and_missing_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    Daemon::start(&data, &[]).stop();
    let key = data.join("cluster.key");
    let saved = read(&key);
    fs::write(&key, "nonsense").expect("damaged");
    let said = Daemon::refused(&data, &[]);
    assert!(said.contains("cluster.key is not a cluster key"), "{said}");
    fs::write(&key, format!("{}\n", "A".repeat(43) + "=")).expect("another key");
    let said = Daemon::refused(&data, &[]);
    assert!(said.contains("cluster.key") && said.contains("is not the key of this cluster"), "{said}");
    fs::remove_file(&key).expect("removed");
    let said = Daemon::refused(&data, &[]);
    assert!(said.contains("cluster.key does not exist") && said.contains("--cluster-key-file"), "{said}");
    assert!(!key.exists(), "no other key is generated in its place");
    fs::write(&key, &saved).expect("restored");
    for name in ["pki/ca.crt", "pki/admin.token"] {
        let path = data.join(name);
        let saved = read(&path);
        let swap_case = |letter: char| match letter.is_ascii_lowercase() {
            true => letter.to_ascii_uppercase(),
            false => letter.to_ascii_lowercase(),
        };
        fs::write(&path, saved.chars().map(swap_case).collect::<String>()).expect("damaged");
        let said = Daemon::refused(&data, &[]);
        assert!(said.contains(name) && said.contains("is damaged"), "{said}");
        fs::write(&path, saved).expect("restored");
    }
    // The certificate is public and in the database; the token is not.
    fs::remove_file(data.join("pki/ca.crt")).expect("removed");
    let server = Daemon::start(&data, &[]);
    assert!(data.join("pki/ca.crt").exists());
    server.stop();
}

#[test]
fn files_of_a_ca_are_taken_over_by_a_new_cluster_and_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, other) = (folder.path().join("data"), folder.path().join("other"));
    let make = |directory: &Path| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        fs::create_dir_all(directory.join("pki")).expect("a directory");
        fs::write(directory.join("pki/ca.crt"), &certificate).expect("written");
        fs::write(directory.join("pki/ca.key"), key.serialize_pem()).expect("written");
        certificate
    };
    let certificate = make(&data);
    make(&other);
    let key = data.join("pki/ca.key");
    let saved = read(&key);
    fs::remove_file(&key).expect("removed");
    let said = Daemon::refused(&data, &[]);
    assert!(said.contains("ca.crt has no ca.key beside it"), "{said}");
    fs::write(&key, "nonsense").expect("damaged");
    let said = Daemon::refused(&data, &[]);
    assert!(said.contains("pki/ca.key") && said.contains("not a usable CA"), "{said}");
    fs::copy(other.join("pki/ca.key"), &key).expect("another's");
    let said = Daemon::refused(&data, &[]);
    assert!(said.contains("pki/ca.key") && said.contains("not a usable CA"), "{said}");
    fs::write(&key, saved).expect("restored");
    let server = Daemon::start(&data, &[]);
    let published = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"];
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.kubectl_with(&server.kubeconfig(), &published).1 != certificate.trim() {
        assert!(Instant::now() < deadline, "the CA is not published");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

#[test]
fn client_keys_are_in_the_form_that_every_client_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Daemon::start(folder.path(), &[]);
    let kubeconfig = read(&server.kubeconfig());
    let data =
        kubeconfig.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).expect("a key");
    // "-----BEGIN EC PRIVATE KEY-----" in base64.
    assert!(data.starts_with("LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0t"), "{data}");
    assert_eq!(server.kubectl(&["get", "namespace", "default", "-o", "name"]), "namespace/default");
}

#[test]
fn keys_are_rotated_in_three_steps_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let server = Daemon::start(&data, &[]);
    let old_kubeconfig = folder.path().join("old.kubeconfig");
    fs::copy(server.kubeconfig(), &old_kubeconfig).expect("copied");
    server.eventually(&["get", "serviceaccount", "default", "-o", "name"], |said| said.contains("default"));
    let old_token = server.kubectl(&["create", "token", "default", "--duration", "2h"]);
    let old_ca = read(&data.join("pki/ca.crt"));
    let account = "system:serviceaccount:default:default";
    for (step, is_last) in [("Step 1 of 3", false), ("Step 2 of 3", false), ("Step 3 of 3", true)] {
        for key in ["ca", "front-proxy-ca", "service-account-key"] {
            let said = server.rotate(key);
            assert!(said.contains(step), "{said}");
        }
        let keys = if is_last { 1 } else { 2 };
        server
            .eventually(&["get", "--raw", "/openid/v1/jwks"], |said| said.matches("\"kid\"").count() == keys);
        let all_cas = ["get", "configmap", "kube-root-ca.crt", "-o", r"jsonpath={.data.ca\.crt}"];
        server.eventually(&all_cas, |said| said.matches("BEGIN CERTIFICATE").count() == keys);
        assert_eq!(read(&data.join("pki/ca.crt")).matches("BEGIN CERTIFICATE").count(), keys, "{step}");
        assert_eq!(server.kubectl(&WHOAMI), "kubernetes-admin", "{step}: its own kubeconfig");
        // The server's certificate is of the new CA from the second step on: the old kubeconfig must not verify it.
        let skip = [&["--insecure-skip-tls-verify", "--certificate-authority="], &WHOAMI[..]].concat();
        let (_, who) = server.kubectl_with(&old_kubeconfig, &skip);
        assert_eq!(who == "kubernetes-admin", !is_last, "{step}: a client certificate of the old CA: {who}");
        let (verified, said) = server.kubectl_with(&old_kubeconfig, &WHOAMI);
        assert_eq!(verified, step == "Step 1 of 3", "{step}: the server's certificate: {said}");
        let review = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": old_token}});
        let user = ["create", "-f", "-", "-o", "jsonpath={.status.user.username}"];
        let who = server.with_input(&user, &review.to_string());
        assert_eq!(who == account, !is_last, "{step}: a token of the old key: {who}");
        // Extension API servers are told of both CAs of the front proxy, and of both of clients.
        let facts = ["-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o"];
        for file in ["client-ca-file", "requestheader-client-ca-file"] {
            let content = format!("jsonpath={{.data.{file}}}");
            let published = [&facts[..], &[content.as_str()]].concat();
            server.eventually(&published, |said| said.matches("BEGIN CERTIFICATE").count() == keys);
        }
    }
    let new_ca = read(&data.join("pki/ca.crt"));
    assert!(!new_ca.contains(old_ca.trim()));
    server.stop();
    // A data directory with the old CA is of the same cluster.
    fs::write(data.join("pki/ca.crt"), old_ca).expect("written");
    let server = Daemon::start(&data, &[]);
    assert_eq!(read(&data.join("pki/ca.crt")), new_ca);
    server.stop();
}

#[test]
fn retired_ca_is_not_trusted_for_longer_than_a_file_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    // The CA of another cluster is one of clients here.
    let other = Daemon::start(&folder.path().join("other"), &[]);
    let (file, hidden) = (folder.path().join("clients.crt"), folder.path().join("hidden.crt"));
    fs::copy(other.data_dir.join("pki/ca.crt"), &file).expect("copied");
    other.stop();
    let data = folder.path().join("data");
    let server = Daemon::start(&data, &["--client-ca-file", &file.display().to_string()]);
    let old_kubeconfig = folder.path().join("old.kubeconfig");
    fs::copy(server.kubeconfig(), &old_kubeconfig).expect("copied");
    let cas = || read(&data.join("pki/ca.crt")).matches("BEGIN CERTIFICATE").count();
    for (step, count) in [(1, 2), (2, 2), (3, 1)] {
        if step == 3 {
            fs::rename(&file, &hidden).expect("renamed");
        }
        assert!(server.rotate("ca").contains(&format!("Step {step} of 3")));
        server.eventually(&["version"], |_| cas() == count);
    }
    fs::rename(&hidden, &file).expect("renamed");
    let skip = [&["--insecure-skip-tls-verify", "--certificate-authority="], &WHOAMI[..]].concat();
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.kubectl_with(&old_kubeconfig, &skip).1 == "kubernetes-admin" {
        assert!(Instant::now() < deadline, "the retired CA is trusted");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.kubectl(&WHOAMI), "kubernetes-admin");
    server.stop();
}
