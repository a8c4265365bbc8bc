//! `orlop device`, the program: output, shutdown, durability under kills.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use orlop_device_client::{
    Connect, Gpus, Source,
    api::{
        Condition, CreateGpuRequest, DeleteGpuRequest, Gpu, GpuSpec, GpuStatus, ObjectMeta,
        UpdateGpuStatusRequest,
    },
};

fn orlop(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["device"]).args(arguments).env("RUST_BACKTRACE", "0");
    command
}

fn address(folder: &Path) -> String {
    format!("unix://{}", folder.join("d.sock").display())
}

/// A server on a SQLite file, killed when dropped.
struct Server(Child);

impl Server {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    fn start_with(folder: &Path, settings: &[&str]) -> Self {
        let storage = format!("sqlite://{}", folder.join("state.db").display());
        let output = fs::File::create(folder.join("serve.out")).unwrap();
        let child = orlop(&["serve", "--bind-address", &address(folder), "--storage-endpoint", &storage])
            .args(["--metrics-bind-address", "none", "--health-probe-bind-address", "127.0.0.1:0"])
            .args(settings)
            .stdout(output)
            .stderr(fs::File::create(folder.join("serve.err")).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(folder.join("d.sock")).is_err() {
            assert!(Instant::now() < deadline, "{}", fs::read_to_string(folder.join("serve.err")).unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn gpus(folder: &Path) -> Gpus {
    Gpus::new(Connect::to(address(folder)).open().unwrap())
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_survives_a_kill_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    for round in 0..5 {
        let server = Server::start(folder.path());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let (mut client, acknowledged) = (gpus(folder.path()).client(), acknowledged.clone());
            writers.spawn(async move {
                for number in 0.. {
                    let name = format!("r{round}-w{writer}-{number}");
                    let meta = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                    let spec = Some(GpuSpec { uuid: "GPU-12".into() });
                    let gpu = Gpu { object_meta: Some(meta), spec, ..Gpu::default() };
                    let request = CreateGpuRequest { gpu: Some(gpu), opts: None };
                    // An error is the kill.
                    let Ok(made) = client.create_gpu(request).await else { return };
                    let version = Gpus::version(made.get_ref()).to_owned();
                    acknowledged.lock().unwrap().insert(name, version);
                }
            });
        }
        let enough = acknowledged.lock().unwrap().len() + 20 + 17 * round;
        let deadline = Instant::now() + Duration::from_secs(60);
        while acknowledged.lock().unwrap().len() < enough {
            assert!(Instant::now() < deadline, "too few writes came through");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.signal("KILL");
        drop(server);
        while writers.join_next().await.is_some() {}

        let server = Server::start(folder.path());
        let (found, _) = gpus(folder.path()).list().await.unwrap();
        let found: BTreeMap<_, _> =
            found.iter().map(|gpu| (Gpus::key(gpu).1, Gpus::version(gpu).to_owned())).collect();
        let acknowledged = acknowledged.lock().unwrap();
        for (name, version) in acknowledged.iter() {
            assert_eq!(found.get(name), Some(version), "{name} of round {round}");
        }
        // Every object was made by a write of its own.
        let versions: std::collections::BTreeSet<_> = found.values().collect();
        assert_eq!(versions.len(), found.len(), "a version was used twice");
        drop(server);
    }
}

#[test]
fn it_says_what_runs_where_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    // It answers a moment before it says so.
    let deadline = Instant::now() + Duration::from_secs(20);
    let says = loop {
        let says = fs::read_to_string(folder.path().join("serve.out")).unwrap();
        if says.contains("orlop device watch") {
            break says;
        }
        assert!(Instant::now() < deadline, "{says}");
        std::thread::sleep(Duration::from_millis(5));
    };
    for part in [
        "nvidia.nvsentinel.v1alpha1.GpuService",
        &address(folder.path()),
        "sqlite://",
        "mode 0666",
        "orlop device watch",
    ] {
        assert!(says.contains(part), "{part} is not in:\n{says}");
    }
    assert!(says.lines().count() <= 20, "more than a screen:\n{says}");

    let mut agent = orlop(&["agent", "--fake", "3", "--server", &address(folder.path())])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let table = loop {
        let output = orlop(&["get", "--server", &address(folder.path())]).output().unwrap();
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        if table.matches("True").count() == 12 {
            break table;
        }
        assert!(Instant::now() < deadline, "{table}");
        std::thread::sleep(Duration::from_millis(50));
    };
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(table.starts_with("NAME ") && table.lines().count() == 4, "{table}");
    let name = table.lines().nth(1).unwrap().split(' ').next().unwrap();
    let one = orlop(&["get", name, "--server", &address(folder.path())]).output().unwrap();
    assert_eq!(text(&one).lines().count(), 2);

    let began = Instant::now();
    server.signal("TERM");
    assert!(server.0.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(!folder.path().join("d.sock").exists());
    let log = fs::read_to_string(folder.path().join("serve.err")).unwrap();
    assert!(log.contains("verb=Create") && log.contains("uid="), "writes are in the log:\n{log}");
    let gone = orlop(&["get", "--server", &address(folder.path())]).output().unwrap();
    assert!(!gone.status.success() && text(&gone).contains("Is it running?"), "{}", text(&gone));
}

#[tokio::test]
async fn denied_calls_are_logged_as_json() {
    let folder = tempfile::tempdir().unwrap();
    // A uid that no process has.
    let server = Server::start_with(folder.path(), &["--allow-uid", "4294967294", "--log-format", "json"]);
    let request = CreateGpuRequest { gpu: Some(Gpu::default()), opts: None };
    let refused = gpus(folder.path()).client().create_gpu(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    drop(server);
    let log = fs::read_to_string(folder.path().join("serve.err")).unwrap();
    let mut lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
    let line = lines.rfind(|line| line["target"] == "audit").expect("a line of the audit");
    assert_eq!(line["level"], "WARN");
    let fields = &line["fields"];
    assert_eq!((&fields["message"], &fields["verb"]), (&"denied".into(), &"Create".into()), "{line}");
    let caller = fields["caller"].as_str().unwrap();
    assert!(caller.starts_with("uid=") && caller.ends_with(&format!("pid={}", std::process::id())), "{line}");
}

#[test]
fn api_server_on_the_same_database_serves_devices() {
    let folder = tempfile::tempdir().unwrap();
    let _devices = Server::start(folder.path());
    let mut agent = orlop(&["agent", "--fake", "2", "--server", &address(folder.path())])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let database = format!("sqlite://{}", folder.path().join("state.db").display());
    let api = support::Server::start_with(&["--endpoint", &database]);
    let definition = orlop(&["definition"]).output().unwrap();
    assert!(definition.status.success(), "{}", text(&definition));
    api.with_input(&["apply", "-f", "-"], &String::from_utf8_lossy(&definition.stdout));
    api.eventually(&["get", "gpus", "-o", "name"], |names| {
        names.lines().filter(|name| name.starts_with("gpu.device.nvidia.com/")).count() == 2
    });
    api.eventually(
        &["get", "gpus", "-o", "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}"],
        |ready| ready == "True True",
    );
    let uuids = api.kubectl(&["get", "gpus", "-o", "jsonpath={.items[*].spec.uuid}"]);
    assert!(uuids.split(' ').all(|uuid| uuid.starts_with("GPU-")), "{uuids}");
    assert!(api.kubectl(&["explain", "gpu.status.recommendedAction"]).contains("recommendedAction"));
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// `orlop device watch` on a pseudo-terminal, which `script` provides.
struct Screen {
    child: Child,
    /// File with the process of the program.
    pid: PathBuf,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    fn watch(folder: &Path) -> Self {
        let pid = folder.join("watch.pid");
        let program = env!("CARGO_BIN_EXE_orlop");
        let command =
            format!("echo $$ > {}; exec {program} device watch --server {}", pid.display(), address(folder));
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let shown: Arc<Mutex<String>> = Arc::default();
        let (mut output, into) = (child.stdout.take().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut more = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut more) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&more[..read]));
            }
        });
        Self { child, pid, shown }
    }

    /// Returns the last complete frame once it satisfies `wanted`.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let shown = self.shown.lock().unwrap().clone();
            let picture = shown.rsplit("\x1b[H").find_map(|picture| picture.strip_suffix("\x1b[J"));
            match picture {
                Some(picture) if wanted(picture) => return picture.to_owned(),
                _ => assert!(Instant::now() < deadline, "{shown:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The end of its terminal does not end a program that ignores SIGHUP, as under nohup. `script` ends with it.
        let pid = std::fs::read_to_string(&self.pid).unwrap_or_default();
        let ended = Command::new("kill").args(["-KILL", pid.trim()]).status();
        if !ended.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terminal_table_is_redrawn_with_each_change() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let screen = Screen::watch(folder.path());
    screen.until(|picture| picture.contains("0 devices, 0 ready"));
    let mut client = gpus(folder.path()).client();
    for name in ["gpu-a", "gpu-b"] {
        let meta = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        let spec = Some(GpuSpec { uuid: "GPU-12".into() });
        let gpu = Gpu { object_meta: Some(meta), spec, ..Gpu::default() };
        client.create_gpu(CreateGpuRequest { gpu: Some(gpu), opts: None }).await.unwrap();
    }
    let picture = screen.until(|picture| picture.contains("2 devices, 0 ready"));
    assert_eq!(picture.matches("gpu-a").count(), 1, "one table, not two:\n{picture}");
    let lines = picture.trim_end().split("\r\n").collect::<Vec<_>>();
    assert!(lines.iter().all(|line| line.ends_with("\x1b[K")), "what stood there is cleared: {lines:?}");

    let condition = Condition { r#type: "Ready".into(), status: "True".into(), ..Condition::default() };
    let status = GpuStatus { conditions: vec![condition], recommended_action: None };
    let meta = ObjectMeta { name: Some("gpu-a".into()), ..ObjectMeta::default() };
    let gpu = Gpu { object_meta: Some(meta), status: Some(status), ..Gpu::default() };
    client.update_gpu_status(UpdateGpuStatusRequest { gpu: Some(gpu), opts: None }).await.unwrap();
    screen.until(|picture| picture.contains("2 devices, 1 ready"));
    let gone = DeleteGpuRequest { name: "gpu-b".into(), ..DeleteGpuRequest::default() };
    client.delete_gpu(gone).await.unwrap();
    let picture = screen.until(|picture| picture.contains("1 devices, 1 ready"));
    assert!(!picture.contains("gpu-b"), "{picture}");

    // The table survives a restart of the server.
    drop(server);
    let _server = Server::start(folder.path());
    let mut client = gpus(folder.path()).client();
    let gone = DeleteGpuRequest { name: "gpu-a".into(), ..DeleteGpuRequest::default() };
    client.delete_gpu(gone).await.unwrap();
    screen.until(|picture| picture.contains("0 devices, 0 ready"));
}

#[test]
fn agent_without_a_driver_reports_it() {
    // With a driver the agent keeps running.
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let output = orlop(&["agent", "--server", "unix:///nowhere.sock"]).output().unwrap();
    assert!(!output.status.success());
    let says = text(&output);
    assert!(says.contains("cannot find GPUs") && says.contains("--fake N"), "{says}");
}

#[test]
fn help_shows_examples_and_flags() {
    let help = text(&orlop(&["--help"]).output().unwrap());
    assert!(help.contains("orlop device serve --bind-address"), "{help}");
    let help = text(&orlop(&["serve", "--help"]).output().unwrap());
    for part in ["--storage-endpoint", "--allow-uid", "--client-ca-file", "Examples:"] {
        assert!(help.contains(part), "{help}");
    }
    let wrong = text(&orlop(&["serve", "--storage-endpoint", "mysql://x"]).output().unwrap());
    assert!(wrong.contains("none of memory, sqlite:///"), "{wrong}");
}
