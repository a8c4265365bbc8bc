//! The monitor: starts the program, writes its log, serves `attach` and `exec`, records its end.
//!
//! One thread, and local tasks that share a state. Nothing here may start a thread: after a process has unshared its
//! pid namespace the kernel refuses it.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    convert::Infallible,
    fs,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use rustix::{
    process::{Pid, PidfdFlags, Signal, WaitOptions},
    thread::{LinkNameSpaceType, UnshareFlags},
};
use tokio::{
    io::{AsyncReadExt, unix::AsyncFd},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, LocalSet, spawn_local},
    time::timeout,
};

use super::{
    LAUNCH, SELF,
    config::{Config, Exec, Exit, Outcome, Request, Sandbox, Started, write},
    frames::{self, channel},
    log_writer::LogWriter,
    processes,
    stdio::{self, Input, Output, Terminal},
};
use crate::cgroups;

/// Signals that are passed on to the program.
const FORWARDED: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TERM,
    Signal::WINCH,
    Signal::CONT,
];
/// Chunks of output that wait for a slow `attach`. Then the program waits.
const ATTACH_QUEUE: usize = 256;
/// Longest wait for an `attach` that takes no output, before it is cut off.
const ATTACH_STALL: Duration = Duration::from_secs(10);
/// Bytes of output that are kept for the first `attach`.
const UNSEEN_BYTES_MAX: usize = 256 << 10;
/// Time for output and connections to end after the program.
const DRAIN: Duration = Duration::from_secs(1);
/// Time for a stage to report before it is taken for failed.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);
const READ_BUFFER: usize = 32 << 10;

/// Runs the monitor of the container in a folder.
pub(super) fn run(folder: &Path) -> io::Result<()> {
    let config = Config::read(folder)?;
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    if let Err(error) = leave_namespaces(&config) {
        report(&Started::Error(format!("cannot create namespaces: {error}")))?;
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, monitor(folder, config))
}

/// Leaves namespaces of the machine, for new ones or for those of the pod's sandbox.
fn leave_namespaces(config: &Config) -> io::Result<()> {
    let Some(namespaces) = &config.namespaces else { return Ok(()) };
    let mut own = UnshareFlags::NEWPID | UnshareFlags::NEWUTS;
    match config.sandbox {
        Some(sandbox) => {
            join(sandbox, namespaces.user)?;
            own.set(UnshareFlags::NEWPID, !sandbox.shares_processes);
            #[expect(deprecated, reason = "because of flags that are not used here")]
            rustix::thread::unshare(own)?;
        }
        None => {
            own.set(UnshareFlags::NEWIPC, config.holds.is_some());
            unshare(own, namespaces.user)?;
        }
    }
    for (path, value) in config.holds.iter().flatten() {
        fs::write(path, value).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
    }
    Ok(())
}

/// Joins the namespaces of a sandbox. Children are in its pid namespace, if that is shared.
fn join(sandbox: Sandbox, user: bool) -> io::Result<()> {
    let open = |name: &str| fs::File::open(format!("/proc/{}/ns/{name}", sandbox.pid));
    let mut all = vec![(open("ipc")?, LinkNameSpaceType::InterProcessCommunication)];
    if sandbox.shares_processes {
        all.push((open("pid")?, LinkNameSpaceType::ProcessID));
    }
    if user {
        // First: it gives the rights to join the others.
        all.insert(0, (open("user")?, LinkNameSpaceType::User));
    }
    for (file, kind) in all {
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind))?;
    }
    Ok(())
}

/// Leaves the pid and host name namespaces of the machine. Children are in the new pid namespace.
fn unshare(mut flags: UnshareFlags, user: bool) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    flags.set(UnshareFlags::NEWUSER, user);
    // Deprecated because of flags that are not used here: file descriptors stay shared.
    #[expect(deprecated)]
    rustix::thread::unshare(flags)?;
    if user {
        fs::write("/proc/self/setgroups", "deny")?;
        // Root inside: a program that is executed as anybody else has no capabilities, and mounts come after that.
        fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    Ok(())
}

/// State that the tasks share.
struct Monitor {
    folder: PathBuf,
    config: Config,
    log: RefCell<LogWriter>,
    /// The program's process.
    pid: Cell<i32>,
    stdin: tokio::sync::Mutex<Option<Input>>,
    terminal: RefCell<Option<Rc<Terminal>>>,
    attached: RefCell<Vec<mpsc::Sender<(u8, Bytes)>>>,
    /// Output until the first `attach`, if the program reads standard input (as with `kubectl run -i` and `debug -i`): it is
    /// faster than its client. The log has all of it.
    unseen: RefCell<Option<Unseen>>,
    /// True once the log may wait for no client any more.
    cut_off: watch::Sender<bool>,
    /// Held by connections that may have something to send. `None` once the container has ended.
    connections: RefCell<Option<mpsc::Sender<Infallible>>>,
    /// Receivers of exit codes, by process.
    waiting: RefCell<HashMap<i32, oneshot::Sender<(i32, i32)>>>,
    /// Receivers of launch outcomes, by number; 0 is the program's.
    launches: RefCell<HashMap<u32, oneshot::Sender<String>>>,
    launched: Cell<u32>,
    /// Signal that ended a program by its default action, which the kernel does not apply to the first process of a
    /// pid namespace.
    ended_by: Cell<Option<Signal>>,
    /// The code of the program, once it has ended.
    outcome: Cell<Option<i32>>,
}

/// The newest output that no client has seen.
#[derive(Debug, Default)]
struct Unseen {
    chunks: VecDeque<(u8, Bytes)>,
    bytes: usize,
}

impl Unseen {
    fn push(&mut self, channel: u8, chunk: Bytes) {
        self.bytes += chunk.len();
        self.chunks.push_back((channel, chunk));
        while self.bytes > UNSEEN_BYTES_MAX
            && let Some((_, oldest)) = self.chunks.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

async fn monitor(folder: &Path, config: Config) -> io::Result<()> {
    let log = LogWriter::open(&config.log, config.log_bytes_max, config.log_files_max)?;
    let listener = frames::bind(&config.id)?;
    // A node that came up in the meantime has withdrawn a start that it did not know of.
    if !Config::is_current(folder) {
        return report(&Started::Error("the start was withdrawn".to_owned()));
    }
    let mut children = signal(SignalKind::child())?;
    let (connections, ended) = mpsc::channel(1);
    let monitor = Rc::new(Monitor {
        folder: folder.to_owned(),
        log: RefCell::new(log),
        pid: Cell::new(0),
        stdin: tokio::sync::Mutex::new(None),
        terminal: RefCell::default(),
        attached: RefCell::default(),
        unseen: RefCell::new(config.stdin.then(Unseen::default)),
        cut_off: watch::Sender::new(false),
        connections: RefCell::new(Some(connections)),
        waiting: RefCell::default(),
        launches: RefCell::default(),
        launched: Cell::new(0),
        ended_by: Cell::new(None),
        outcome: Cell::new(None),
        config,
    });
    spawn_local(monitor.clone().accept(listener));
    let reaping = monitor.clone();
    spawn_local(async move {
        while children.recv().await.is_some() {
            reaping.reap();
        }
    });
    if let Some(node) = monitor.config.node {
        spawn_local(end_with(node_process(node)?));
    }
    // Before the program, which may end before anybody asks for the time.
    let started_at = Timestamp::now();
    let started = monitor.launch(0, monitor.config.stdin, monitor.config.tty).await;
    let Launched { streams, exited, .. } = match started {
        Ok(started) => started,
        Err(error) => {
            processes::kill_descendants(own_pid());
            return report(&Started::Error(error));
        }
    };
    for number in FORWARDED {
        let mut signals = signal(SignalKind::from_raw(number.as_raw()))?;
        let monitor = monitor.clone();
        spawn_local(async move {
            while signals.recv().await.is_some() {
                monitor.forward(*number);
            }
        });
    }
    *monitor.stdin.lock().await = streams.stdin;
    *monitor.terminal.borrow_mut() = streams.terminal;
    let outputs = [
        streams
            .stdout
            .map(|output| spawn_local(monitor.clone().log_output("stdout", channel::STDOUT, output))),
        streams
            .stderr
            .map(|output| spawn_local(monitor.clone().log_output("stderr", channel::STDERR, output))),
    ];
    report(&Started::At(started_at))?;
    let (code, number) = exited.await.unwrap_or((137, 9));
    monitor.finish(code, number, outputs.into_iter().flatten(), ended).await
}

/// A program that was started.
struct Launched {
    pid: i32,
    streams: stdio::Streams,
    /// Exit code and signal.
    exited: oneshot::Receiver<(i32, i32)>,
}

impl Monitor {
    /// Starts the program (number 0) or that of an `exec`.
    async fn launch(self: &Rc<Self>, number: u32, stdin: bool, tty: bool) -> Result<Launched, String> {
        let (report, mut reported) = oneshot::channel();
        let (exit, exited) = oneshot::channel();
        self.launches.borrow_mut().insert(number, report);
        let mut command = Command::new(SELF);
        command.arg(LAUNCH).arg(&self.folder);
        if number > 0 {
            command.arg(number.to_string());
        }
        let (child, streams) = stdio::spawn(&mut command, stdin, tty).map_err(|error| error.to_string())?;
        let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
        if number == 0 {
            self.pid.set(pid);
        }
        self.waiting.borrow_mut().insert(pid, exit);
        let mut exited = exited;
        let launched = tokio::select! {
            launched = timeout(LAUNCH_TIMEOUT, &mut reported) => match launched {
                Ok(Ok(error)) if error.is_empty() => Ok(()),
                Ok(Ok(error)) => Err(error),
                _ => Err("the program was not started in time".to_owned()),
            },
            ended = &mut exited => {
                // A program may end before its report is read.
                let (code, number) = ended.unwrap_or((127, 0));
                match timeout(DRAIN, reported).await {
                    Ok(Ok(error)) if error.is_empty() => {
                        let (again, exited_again) = oneshot::channel();
                        let _ = again.send((code, number));
                        return Ok(Launched { pid, streams, exited: exited_again });
                    }
                    Ok(Ok(error)) => Err(error),
                    _ => Err(format!("the program could not be started (exit code {code})")),
                }
            }
        };
        launched.map(|()| Launched { pid, streams, exited })
    }

    /// Collects children that have ended.
    fn reap(&self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let number = status.terminating_signal().unwrap_or(0);
            let code = status.exit_status().unwrap_or(128 + number);
            if let Some(exit) = self.waiting.borrow_mut().remove(&pid.as_raw_nonzero().get()) {
                let _ = exit.send((code, number));
            }
        }
    }

    fn forward(&self, number: Signal) {
        let pid = self.pid.get();
        let is_terminal_signal = matches!(number, Signal::WINCH | Signal::CONT);
        if self.config.namespaces.is_some() && !is_terminal_signal && !processes::handles(pid, number) {
            // The kernel drops such a signal for the first process of a pid namespace.
            self.ended_by.set(Some(number));
            let _ = processes::signal(pid, Signal::KILL);
        } else {
            let _ = processes::signal(pid, number);
        }
    }

    async fn log_output(self: Rc<Self>, name: &'static str, channel: u8, mut output: Output) {
        let mut buffer = vec![0; READ_BUFFER];
        let mut pending = Vec::new();
        while let Ok(length @ 1..) = output.read(&mut buffer).await {
            let bytes = &buffer[..length];
            // A full disk must not stop the program.
            let _ = self.log.borrow_mut().write(name, &mut pending, bytes);
            self.show(channel, Bytes::copy_from_slice(bytes)).await;
        }
        let _ = self.log.borrow_mut().finish(name, &mut pending);
    }

    /// Sends output to every `attach`, or keeps it for the first.
    async fn show(&self, channel: u8, chunk: Bytes) {
        if let Some(unseen) = &mut *self.unseen.borrow_mut() {
            unseen.push(channel, chunk);
            return;
        }
        let attached = self.attached.borrow().clone();
        let mut cut_off = self.cut_off.subscribe();
        for client in attached {
            let is_sent = tokio::select! {
                sent = client.send_timeout((channel, chunk.clone()), ATTACH_STALL) => sent.is_ok(),
                _ = cut_off.wait_for(|cut_off| *cut_off) => false,
            };
            if !is_sent {
                self.attached.borrow_mut().retain(|known| !known.same_channel(&client));
            }
        }
    }

    async fn accept(self: Rc<Self>, listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that comes after the end reads the log instead.
            let Some(connection) = self.connections.borrow().clone() else { continue };
            if frames::check_peer(&stream).is_ok() {
                let monitor = self.clone();
                spawn_local(async move {
                    let _ = monitor.serve(stream, connection).await;
                });
            }
        }
    }

    async fn serve(
        self: Rc<Self>,
        mut stream: UnixStream,
        connection: mpsc::Sender<Infallible>,
    ) -> io::Result<()> {
        match frames::read(&mut stream).await? {
            Some((channel::REQUEST, bytes)) => match serde_json::from_slice(&bytes)? {
                Request::Attach => self.attach(stream, connection).await,
                Request::Exec(exec) => self.exec(stream, exec).await,
            },
            // A launch stage: its number, then an error or the end of the stream.
            Some((channel::OUTCOME, bytes)) => {
                let number = serde_json::from_slice(&bytes)?;
                let mut error = String::new();
                stream.read_to_string(&mut error).await?;
                if let Some(launch) = self.launches.borrow_mut().remove(&number) {
                    let _ = launch.send(error);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn attach(
        self: Rc<Self>,
        stream: UnixStream,
        connection: mpsc::Sender<Infallible>,
    ) -> io::Result<()> {
        let (mut reader, mut writer) = stream.into_split();
        let (sender, mut output) = mpsc::channel(ATTACH_QUEUE);
        let unseen = self.unseen.take().unwrap_or_default();
        if self.outcome.get().is_none() {
            self.attached.borrow_mut().push(sender);
        } else {
            drop(sender);
        }
        let monitor = self.clone();
        let sending: JoinHandle<io::Result<()>> = spawn_local(async move {
            let _connection = connection;
            for (channel, bytes) in unseen.chunks {
                frames::write(&mut writer, channel, &bytes).await?;
            }
            while let Some((channel, bytes)) = output.recv().await {
                frames::write(&mut writer, channel, &bytes).await?;
            }
            // Without an outcome the client was too slow: it lost output.
            if let Some(code) = monitor.outcome.get() {
                send_outcome(&mut writer, &Outcome::Exited(code)).await?;
            }
            Ok(())
        });
        let mut has_stdin = false;
        while let Ok(Some((channel, bytes))) = frames::read(&mut reader).await {
            match channel {
                channel::STDIN => {
                    has_stdin = true;
                    if let Some(stdin) = &mut *self.stdin.lock().await {
                        let _ = stdin.write(&bytes).await;
                    }
                }
                channel::RESIZE => {
                    if let Some(terminal) = &*self.terminal.borrow() {
                        resize(terminal, &bytes);
                    }
                }
                channel::STDIN_END => {
                    has_stdin = true;
                    break;
                }
                _ => {}
            }
        }
        if has_stdin && self.config.stdin_once {
            let stdin = self.stdin.lock().await.take();
            if let Some(stdin) = stdin {
                stdin.end().await;
            }
        }
        let _ = sending.await;
        Ok(())
    }

    async fn exec(self: Rc<Self>, stream: UnixStream, exec: Exec) -> io::Result<()> {
        let number = self.launched.get() + 1;
        self.launched.set(number);
        write(&exec_file(&self.folder, number), &(&exec, self.pid.get()))?;
        let (mut reader, mut writer) = stream.into_split();
        let Launched { pid, streams, exited } = match self.launch(number, exec.stdin, exec.tty).await {
            Ok(started) => started,
            Err(error) => return send_outcome(&mut writer, &Outcome::Error(error)).await,
        };
        let (sender, mut output) = mpsc::channel(4);
        for (channel, stream) in [(channel::STDOUT, streams.stdout), (channel::STDERR, streams.stderr)] {
            if let Some(stream) = stream {
                spawn_local(relay(channel, stream, sender.clone()));
            }
        }
        drop(sender);
        let (mut stdin, terminal) = (streams.stdin, streams.terminal);
        let input = spawn_local(async move {
            while let Ok(Some((channel, bytes))) = frames::read(&mut reader).await {
                match (channel, &mut stdin) {
                    (channel::STDIN, Some(stdin)) => drop(stdin.write(&bytes).await),
                    (channel::STDIN_END, _) => {
                        if let Some(stdin) = stdin.take() {
                            stdin.end().await;
                        }
                    }
                    (channel::RESIZE, _) => {
                        if let Some(terminal) = &terminal {
                            resize(terminal, &bytes);
                        }
                    }
                    _ => {}
                }
            }
            if exec.ends_with_client {
                processes::kill_group(pid);
            }
        });
        let mut sent = Ok(());
        while let Some((channel, bytes)) = output.recv().await {
            sent = sent.and(frames::write(&mut writer, channel, &bytes).await);
        }
        let (code, _) = exited.await.unwrap_or((137, 9));
        input.abort();
        sent.and(send_outcome(&mut writer, &Outcome::Exited(code)).await)
    }

    /// Ends what is left of the container, and records its end.
    async fn finish(
        &self,
        code: i32,
        number: i32,
        outputs: impl Iterator<Item = JoinHandle<()>>,
        mut ended: mpsc::Receiver<Infallible>,
    ) -> io::Result<()> {
        let at = Timestamp::now();
        let _ = timeout(DRAIN, async {
            while !processes::descendants(own_pid()).is_empty() {
                processes::kill_descendants(own_pid());
                self.reap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        let mut drained = std::pin::pin!(async move {
            for output in outputs {
                let _ = output.await;
            }
        });
        if timeout(DRAIN, &mut drained).await.is_err() {
            self.cut_off.send_replace(true);
            let _ = timeout(DRAIN, drained).await;
        }
        let (code, signal) = match self.ended_by.get() {
            Some(ended_by) if number == Signal::KILL.as_raw() => (128 + ended_by.as_raw(), ended_by.as_raw()),
            _ => (code, number),
        };
        let oom_killed = code != 0 && cgroups::is_oom_killed(&self.config.cgroups);
        Exit { code, signal, at, oom_killed }.write(&self.folder)?;
        cgroups::remove(&self.config.cgroups);
        self.outcome.set(Some(code));
        self.attached.borrow_mut().clear();
        self.connections.take();
        // Connections of attach and exec send what they have.
        let _ = timeout(DRAIN, ended.recv()).await;
        Ok(())
    }
}

/// Returns the file with an `exec`'s program and the process whose mounts it shares.
pub(super) fn exec_file(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("exec-{number}.json"))
}

async fn relay(channel: u8, mut output: Output, sender: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0; READ_BUFFER];
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        if sender.send((channel, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

fn resize(terminal: &Terminal, bytes: &[u8]) {
    if let [a, b, c, d] = *bytes {
        terminal.resize(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    }
}

async fn send_outcome(writer: &mut OwnedWriteHalf, outcome: &Outcome) -> io::Result<()> {
    frames::write(writer, channel::OUTCOME, &serde_json::to_vec(outcome)?).await
}

/// Tells the node how the start went.
fn report(started: &Started) -> io::Result<()> {
    let mut output = io::stdout().lock();
    // The node may be gone: the container goes on, and is adopted later.
    let _ = output.write_all(format!("{}\n", serde_json::to_string(started)?).as_bytes());
    let _ = output.flush();
    Ok(())
}

/// Returns the process of the node, which has started this one.
fn node_process(pid: i32) -> io::Result<AsyncFd<OwnedFd>> {
    let target = Pid::from_raw(pid).filter(|pid| rustix::process::getppid() == Some(*pid));
    let target = target.ok_or_else(|| io::Error::other("the node has ended"))?;
    let process = rustix::process::pidfd_open(target, PidfdFlags::NONBLOCK)?;
    #[expect(deprecated, reason = "unsound for other types: an OwnedFd stays open and the same")]
    AsyncFd::new(process)
}

/// Ends the container with its node.
async fn end_with(node: AsyncFd<OwnedFd>) {
    let _ = node.readable().await;
    processes::kill_descendants(own_pid());
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
