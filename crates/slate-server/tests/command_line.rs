//! `slate-server` as a program: its variables, its flags, its end.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bson::doc;
use slate_client::{Client, Options};

const PROGRAM: &str = env!("CARGO_BIN_EXE_slate-server");
/// Time within which a server must start or end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server in a process of its own.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, probe: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !probe() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns an address that nobody listens on.
fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// Asks for MongoDB's `ping`. Returns true if there is an answer.
fn answers_mongo(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
    let mut message = vec![0; 4];
    message.extend([1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0]);
    doc! { "ping": 1, "$db": "admin" }.to_writer(&mut message).expect("BSON");
    let length = i32::try_from(message.len()).expect("short").to_le_bytes();
    message[..4].copy_from_slice(&length);
    stream.write_all(&message).is_ok() && stream.read(&mut [0; 16]).is_ok_and(|count| count > 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_the_reference_configure_the_server_and_sigterm_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ready, mongo) = (folder.path().join("ready"), free_address());
    let child = Command::new(PROGRAM)
        .env("SLATE_ADDR", "127.0.0.1:0")
        .env("SLATE_STORE", "memory")
        .env("SLATE_DATA_DIR", folder.path().join("data"))
        .env("SLATE_READY_FILE", &ready)
        .env("SLATE_MONGO_ADDR", mongo.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("slate-server");
    let mut server = Process(child);
    wait_until("the ready file is not written", || {
        std::fs::read_to_string(&ready).is_ok_and(|text| text.ends_with('\n'))
    });
    let address = std::fs::read_to_string(&ready).expect("the ready file");
    let (_, store) = Client::new(Options::new(address.trim_end())).hello().await.expect("hello");
    assert_eq!(store, "memory");
    assert!(answers_mongo(mongo), "MongoDB's protocol is not served");
    assert!(!folder.path().join("data").exists(), "the memory store needs no directory");

    let terminated = Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status();
    assert!(terminated.expect("kill").success());
    let status = server.0.wait().expect("the server's end");
    assert!(status.success(), "{status}");
    assert!(!ready.exists());
}

#[test]
fn help_lists_every_variable_with_its_default() {
    let output = Command::new(PROGRAM).arg("--help").env_clear().output().expect("slate-server");
    assert!(output.status.success());
    let help = String::from_utf8_lossy(&output.stdout);
    for (flag, variable, default) in [
        ("--addr", "SLATE_ADDR", Some("0.0.0.0:9600")),
        ("--store", "SLATE_STORE", Some("memory")),
        ("--data-dir", "SLATE_DATA_DIR", Some("/data")),
        ("--ready-file", "SLATE_READY_FILE", Some("/tmp/ready")),
        ("--mongo-addr", "SLATE_MONGO_ADDR", None),
        ("--http-addr", "SLATE_HTTP_ADDR", None),
        ("--token-file", "SLATE_TOKEN_FILE", None),
        ("--tls-cert", "SLATE_TLS_CERT", None),
        ("--tls-key", "SLATE_TLS_KEY", None),
    ] {
        let start = help.find(&format!("{flag} ")).unwrap_or_else(|| panic!("{flag} is not in {help}"));
        let end = help[start + 2..].find("\n      --").map_or(help.len(), |end| start + 2 + end);
        let described = &help[start..end];
        assert!(described.contains(&format!("[env: {variable}=]")), "{described}");
        match default {
            Some(default) => assert!(described.contains(&format!("[default: {default}]")), "{described}"),
            None => assert!(!described.contains("[default:"), "{described}"),
        }
    }
}
