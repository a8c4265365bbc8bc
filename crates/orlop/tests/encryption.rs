//! Encryption at rest of `orlop serve`, and `orlop encrypt`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use orlop_store::{Config, Endpoint, KeyRange, Read, Store};
use orlop_testbed::Cluster;
use support::daemon::Daemon;

const KEYS: [&str; 2] =
    ["YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=", "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI="];

/// Writes a configuration of secrets and custom gadgets.
fn configure(folder: &Path, providers: &str) -> String {
    let path = folder.join("encryption.yaml");
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
         - resources: [secrets, gadgets.example.org]\n  providers: [{providers}]\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn aesgcm(name: &str, key: &str) -> String {
    format!("{{aesgcm: {{keys: [{{name: {name}, secret: {key}}}]}}}}")
}

/// Returns true if a file in the data directory contains a text.
fn contains(data: &Path, text: &str) -> bool {
    let files = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let has = |path: std::path::PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("orlop.db")).any(has)
}

fn encrypt(data: &Path, config: &str) -> Output {
    encrypt_at(&["--data-dir", &data.display().to_string()], config)
}

fn encrypt_at(place: &[&str], config: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["encrypt", "--rekey", "--encryption-provider-config", config])
        .args(place)
        .output()
        .unwrap()
}

#[track_caller]
fn rekey(data: &Path, config: &str) -> String {
    let output = encrypt(data, config);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

const GADGETS: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"gadgets.example.org"},"spec":{"group":"example.org","scope":"Namespaced",
"names":{"plural":"gadgets","singular":"gadget","kind":"Gadget"},"versions":[{"name":"v1","served":true,
"storage":true,"selectableFields":[{"jsonPath":".spec.color"}],"schema":{"openAPIV3Schema":{"type":"object",
"properties":{"spec":{"type":"object","properties":{"color":{"type":"string"}}}}}}}]}}"#;

#[test]
fn database_is_encrypted_in_place_rotated_and_decrypted_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // In clear at first.
    let server = Daemon::start(&data, &[]);
    server.kubectl(&["create", "secret", "generic", "a", "--from-literal=k=plaintext-one"]);
    server.kubectl(&["label", "secret", "a", "tier=labelvalue"]);
    server.with_input(&["apply", "-f", "-"], GADGETS);
    let gadget = r#"{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"g"},"spec":{"color":"ultramarine"}}"#;
    server.with_input(&["apply", "-f", "-"], gadget);
    server.stop();
    let base64 = "cGxhaW50ZXh0LW9uZQ==";
    assert!(contains(&data, base64) && contains(&data, "labelvalue") && contains(&data, "ultramarine"));

    let config = configure(folder.path(), &format!("{}, {{identity: {{}}}}", aesgcm("one", KEYS[0])));
    let said = rekey(&data, &config);
    assert!(said.contains("objects were written again"), "{said}");
    for text in [base64, "labelvalue", "ultramarine"] {
        assert!(!contains(&data, text), "{text} is still in the database");
    }
    assert!(contains(&data, "k8s:enc:aesgcm:v1:one:"));
    assert!(
        rekey(&data, &config).starts_with("0 of") || rekey(&data, &config).contains("\n0 of"),
        "nothing is left"
    );

    let server = Daemon::start(&data, &["--encryption-provider-config", &config]);
    let value = ["get", "secret", "a", "-o", "jsonpath={.data.k}"];
    assert_eq!(server.kubectl(&value), base64);
    assert_eq!(server.kubectl(&["get", "secrets", "-l", "tier=labelvalue", "-o", "name"]), "secret/a");
    assert_eq!(
        server.kubectl(&["get", "gadgets", "--field-selector", "spec.color=ultramarine", "-o", "name"]),
        "gadget.example.org/g"
    );
    server.kubectl(&["create", "secret", "generic", "b", "--from-literal=k=plaintext-two"]);
    assert!(server.kubectl(&["get", "secrets"]).contains('b'));
    server.kubectl(&["delete", "secret", "b"]);
    server.stop();
    assert!(!contains(&data, "cGxhaW50ZXh0LXR3bw=="));

    // Another key, beside a running server.
    let config = configure(folder.path(), &format!("{}, {}", aesgcm("two", KEYS[1]), aesgcm("one", KEYS[0])));
    let server = Daemon::start(&data, &["--encryption-provider-config", &config]);
    rekey(&data, &config);
    assert_eq!(server.kubectl(&value), base64);
    server.stop();
    let config = configure(folder.path(), &aesgcm("two", KEYS[1]));
    let server = Daemon::start(&data, &["--encryption-provider-config", &config]);
    assert_eq!(server.kubectl(&value), base64);
    server.stop();

    // Without the key the server does not start, or the object is an error that names it.
    let wrong = configure(folder.path(), &aesgcm("two", KEYS[0]));
    let refused = Daemon::refused(&data, &["--encryption-provider-config", &wrong]);
    assert!(refused.contains("message authentication failed"), "{refused}");
    let refused = Daemon::refused(&data, &[]);
    assert!(refused.contains("start with --encryption-provider-config"), "{refused}");
    let config = configure(folder.path(), &format!("{{identity: {{}}}}, {}", aesgcm("two", KEYS[1])));
    rekey(&data, &config);
    let server = Daemon::start(&data, &[]);
    assert_eq!(server.kubectl(&value), base64, "decrypted for good");
    assert_eq!(server.kubectl(&["get", "secrets", "-l", "tier=labelvalue", "-o", "name"]), "secret/a");
}

#[test]
fn update_without_a_change_rewrites_a_stale_object() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Daemon::start(&data, &[]);
    server.kubectl(&["create", "secret", "generic", "a", "--from-literal=k=v"]);
    server.stop();
    let config = configure(folder.path(), &format!("{}, {{identity: {{}}}}", aesgcm("one", KEYS[0])));
    let server = Daemon::start(&data, &["--encryption-provider-config", &config]);
    let version = ["get", "secret", "a", "-o", "jsonpath={.metadata.resourceVersion}"];
    let before = server.kubectl(&version);
    let object = server.kubectl(&["get", "secret", "a", "-o", "json"]);
    server.with_input(&["replace", "-f", "-"], &object);
    let after = server.kubectl(&version);
    assert_ne!(before, after, "it is encrypted now");
    let object = server.kubectl(&["get", "secret", "a", "-o", "json"]);
    server.with_input(&["replace", "-f", "-"], &object);
    assert_eq!(server.kubectl(&version), after);
    assert_eq!(server.kubectl(&["get", "--raw", "/readyz/kms-providers"]), "ok");
}

#[test]
fn object_whose_key_is_lost_can_be_deleted_unsafely() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = configure(folder.path(), &aesgcm("one", KEYS[0]));
    let server = Daemon::start(&data, &["--encryption-provider-config", &config]);
    server.with_input(&["apply", "-f", "-"], GADGETS);
    let gadget = |name: &str| {
        format!(
            r#"{{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{{"name":"{name}","finalizers":["example.org/f"]}}}}"#
        )
    };
    server.with_input(&["create", "-f", "-"], &gadget("lost"));
    server.stop();

    // The key is taken away before objects are written again with the new one.
    let both = format!("{}, {}", aesgcm("two", KEYS[1]), aesgcm("one", KEYS[0]));
    let config = configure(folder.path(), &both);
    Daemon::start(&data, &["--encryption-provider-config", &config]).stop();
    let config = configure(folder.path(), &aesgcm("two", KEYS[1]));
    let server = Daemon::start(&data, &["--encryption-provider-config", &config]);
    server.with_input(&["create", "-f", "-"], &gadget("kept"));
    let refused = |arguments: &[&str]| {
        let (succeeded, said) = server.kubectl_with(&server.kubeconfig(), arguments);
        assert!(!succeeded, "{said}");
        said
    };
    let path =
        |name: &str, query: &str| format!("/apis/example.org/v1/namespaces/default/gadgets/{name}{query}");
    let said = refused(&["get", "--raw", &path("lost", "")]);
    assert!(said.contains("unable to transform key"), "{said}");
    let said = refused(&["delete", "gadget", "lost"]);
    assert!(said.contains("unable to transform key"), "{said}");
    let unsafely = "?ignoreStoreReadErrorWithClusterBreakingPotential=true";
    let said = refused(&["delete", "--raw", &path("kept", unsafely)]);
    assert!(said.contains("the object is decodable from storage"), "{said}");
    let said = refused(&["delete", "--raw", &path("none", unsafely)]);
    assert!(said.contains("not found"), "{said}");
    let said =
        refused(&["delete", "--raw", &format!("/apis/example.org/v1/namespaces/default/gadgets{unsafely}")]);
    assert!(said.contains("is not allowed with DELETECOLLECTION"), "{said}");
    // The permission to delete is not enough.
    server.kubectl(&["create", "clusterrole", "deleter", "--verb=delete", "--resource=gadgets.example.org"]);
    server.kubectl(&["create", "clusterrolebinding", "deleter", "--clusterrole=deleter", "--user=bob"]);
    let said = refused(&["delete", "--as=bob", "--raw", &path("lost", unsafely)]);
    assert!(said.contains("not permitted to do \"unsafe-delete-ignore-read-errors\""), "{said}");
    let dry_run = path("lost", &format!("{unsafely}&dryRun=All"));
    assert!(server.kubectl(&["delete", "--raw", &dry_run]).contains("Success"));
    assert!(server.kubectl(&["delete", "--raw", &path("lost", unsafely)]).contains("Success"));
    assert_eq!(server.kubectl(&["get", "gadgets", "-o", "name"]), "gadget.example.org/kept");
    server.stop();
}

#[test]
fn bad_configurations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = configure(folder.path(), "{aesgcm: {keys: [{name: a, secret: c2hvcnQ=}]}}");
    let refused = Daemon::refused(&data, &["--encryption-provider-config", &config]);
    assert!(refused.contains("secret is not of the expected length, got 5"), "{refused}");
    let refused = Daemon::refused(&data, &["--cors-allowed-origins", "example.org"]);
    assert!(refused.contains("does not pin to start/end of host"), "{refused}");
    let output = encrypt(&folder.path().join("nothing"), &config);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no database"));
}

/// Returns the values of all secrets as they are stored.
fn stored_secrets(url: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(Config::new(Endpoint::parse(url).unwrap())).await.unwrap();
        let read = store.read(Read::new(KeyRange::prefix("/registry/core/secrets/"))).await.unwrap();
        let values = read.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()).collect();
        store.close().await;
        values
    })
}

#[test]
fn servers_on_postgresql_share_encrypted_objects_and_rotate_their_key() {
    let cluster = Cluster::shared().unwrap();
    let url = cluster.url(&cluster.create_database().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (first_data, second_data) = (folder.path().join("first"), folder.path().join("second"));
    let server = Daemon::start(&first_data, &["--endpoint", &url]);
    server.kubectl(&["create", "secret", "generic", "a", "--from-literal=k=plaintext-one"]);
    server.kubectl(&["label", "secret", "a", "tier=labelvalue"]);
    server.stop();
    assert!(stored_secrets(&url)[0].contains("cGxhaW50ZXh0LW9uZQ=="), "in clear at first");

    let config = configure(folder.path(), &format!("{}, {{identity: {{}}}}", aesgcm("one", KEYS[0])));
    let key = first_data.join("cluster.key").display().to_string();
    let options = [
        "--endpoint",
        &url,
        "--cluster-key-file",
        &key,
        "--encryption-provider-config",
        &config,
        "--encryption-provider-config-automatic-reload",
    ];
    let (first, second) = (Daemon::start(&first_data, &options), Daemon::start(&second_data, &options));
    first.kubectl(&["create", "secret", "generic", "b", "--from-literal=k=plaintext-two"]);
    let value =
        |server: &Daemon, name: &str| server.kubectl(&["get", "secret", name, "-o", "jsonpath={.data.k}"]);
    assert_eq!(value(&second, "b"), "cGxhaW50ZXh0LXR3bw==", "what another server encrypted");
    let rekey = |config: &str| {
        let output = encrypt_at(&["--endpoint", &url], config);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
    };
    let all_under = |name: &str| {
        let stored = stored_secrets(&url);
        let prefix = format!("k8s:enc:aesgcm:v1:{name}:");
        assert!(stored.len() == 2 && stored.iter().all(|value| value.starts_with(&prefix)), "{stored:?}");
    };
    rekey(&config);
    all_under("one");

    // Both servers take the next key from the file, and go on while everything is written again.
    let config = configure(folder.path(), &format!("{}, {}", aesgcm("two", KEYS[1]), aesgcm("one", KEYS[0])));
    let reloads = r#"apiserver_encryption_config_controller_automatic_reloads_total{status="success"} 1"#;
    for server in [&first, &second] {
        server.eventually(&["get", "--raw", "/metrics"], |said| said.contains(reloads));
    }
    rekey(&config);
    all_under("two");
    for server in [&first, &second] {
        assert_eq!(
            (value(server, "a"), value(server, "b")),
            ("cGxhaW50ZXh0LW9uZQ==".to_owned(), "cGxhaW50ZXh0LXR3bw==".to_owned())
        );
        let labelled = ["get", "secrets", "-l", "tier=labelvalue", "-o", "name"];
        assert_eq!(server.kubectl(&labelled), "secret/a");
        let metrics = server.kubectl(&["get", "--raw", "/metrics"]);
        let operations = r#"apiserver_storage_transformation_operations_total{resource="secrets",transformation_type="from_storage",transformer_prefix="k8s:enc:aesgcm:v1:",status="OK"}"#;
        assert!(metrics.contains(operations), "{metrics}");
    }
}
