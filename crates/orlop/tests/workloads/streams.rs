//! Live streams: exec, attach and run with and without a terminal, over WebSockets and SPDY; cp.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use crate::{
    cluster::{Cluster, cluster},
    support,
};

/// kubectl with a conversation.
struct Conversation {
    process: Child,
    output: Receiver<Vec<u8>>,
    said: String,
}

impl Conversation {
    /// Starts kubectl in a terminal of its own.
    fn in_terminal(cluster: &Cluster, arguments: &str, environment: &[(&str, &str)]) -> Self {
        let line = format!(
            "stty cols 91 rows 31; exec {} --kubeconfig {} {arguments}",
            support::kubectl().display(),
            cluster.kubeconfig().display()
        );
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).envs(environment.iter().copied());
        Self::start(command)
    }

    /// Starts kubectl with pipes.
    fn in_pipes(cluster: &Cluster, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(support::kubectl());
        command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(arguments);
        command.envs(environment.iter().copied());
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        let mut process = command
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("it starts");
        let mut stdout = process.stdout.take().expect("its output");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { process, output, said: String::new() }
    }

    #[track_caller]
    fn expect(&mut self, wanted: &str) {
        while !self.said.contains(wanted) {
            match self.output.recv_timeout(Duration::from_secs(60)) {
                Ok(bytes) => self.said.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("no {wanted:?} ({error}): {}", self.said),
            }
        }
        let end = self.said.find(wanted).expect("it was said") + wanted.len();
        self.said.drain(..end);
    }

    fn say(&mut self, text: &str) {
        self.process.stdin.as_mut().expect("its input").write_all(text.as_bytes()).expect("written");
    }

    #[track_caller]
    fn end(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.said);
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Environments in which kubectl speaks WebSockets and SPDY.
const PROTOCOLS: [&[(&str, &str)]; 2] =
    [&[], &[("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")]];

#[test]
fn exec_has_a_terminal_of_the_clients_size() {
    let cluster = cluster(&[]);
    cluster.create("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: local/sh, command: [sleep, '1234']}]}}");
    cluster.ready("p");
    for protocol in PROTOCOLS {
        let script = "test -t 0 && test -t 1 && until [ \"$(stty size)\" = \"31 91\" ]; do sleep 0.05; done; echo sized; read x; echo got-$x; exit 0";
        let mut talk =
            Conversation::in_terminal(&cluster, &format!("exec -it p -- sh -c '{script}'"), protocol);
        talk.expect("sized");
        talk.say("word\n");
        talk.expect("got-word");
        talk.end();
    }
}

#[test]
fn attach_joins_a_running_program() {
    let cluster = cluster(&[]);
    let script = "while read x; do echo got-$x; done; echo over";
    let pod = |name: &str, tty: bool| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "local/sh", "stdin": true, "tty": tty, "command": ["sh", "-c", script]}]}})
        .to_string()
    };
    cluster.create(&pod("pipes", false));
    cluster.create(&pod("terminal", true));
    cluster.ready("pipes");
    cluster.ready("terminal");
    for (index, protocol) in PROTOCOLS.into_iter().enumerate() {
        let mut talk = Conversation::in_pipes(&cluster, &["attach", "-i", "pipes"], protocol);
        talk.say(&format!("{index}\n"));
        talk.expect(&format!("got-{index}"));
        let mut terminal = Conversation::in_terminal(&cluster, "attach -it terminal", protocol);
        terminal.say(&format!("{index}\n"));
        terminal.expect(&format!("got-{index}"));
    }
    // Input stays open for the next client: it is not `stdinOnce`.
    assert_eq!(cluster.field("pipes", ".status.phase"), "Running");
    let log = cluster.kubectl(&["logs", "pipes"]);
    assert_eq!(log, "got-0\ngot-1");
}

#[test]
fn run_with_a_terminal_ends_with_its_program() {
    let cluster = cluster(&[]);
    for protocol in PROTOCOLS {
        let script = "echo hello; read x; echo got-$x";
        let arguments =
            format!("run shell -it --rm --restart=Never --image=local/sh --command -- sh -c '{script}'");
        let mut talk = Conversation::in_terminal(&cluster, &arguments, protocol);
        talk.expect("hello");
        talk.say("word\n");
        talk.expect("got-word");
        talk.expect("deleted");
        talk.end();
        cluster.eventually(&["get", "pods", "-o", "name"], str::is_empty);
    }
    let mut talk = Conversation::in_pipes(
        &cluster,
        &["run", "sum", "-i", "--rm", "--restart=Never", "--image=local/sh", "--command", "--", "wc", "-c"],
        &[],
    );
    cluster.wait_for("sum", ".status.phase", "Running");
    talk.say("twelve bytes");
    drop(talk.process.stdin.take());
    talk.expect("12");
    talk.end();
}

#[test]
fn first_attach_sees_what_was_written_before() {
    let cluster = cluster(&[]);
    let script = "echo early; read x; echo got-$x";
    cluster.create(
        &serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "local/sh", "stdin": true, "command": ["sh", "-c", script]}]}})
        .to_string(),
    );
    cluster.ready("p");
    cluster.eventually(&["logs", "p"], |log| log == "early");
    let mut talk = Conversation::in_pipes(&cluster, &["attach", "-i", "p"], &[]);
    talk.expect("early");
    talk.say("word\n");
    talk.expect("got-word");
    talk.end();
    cluster.wait_for("p", ".status.phase", "Succeeded");
}

#[test]
fn run_shows_the_output_of_a_program_that_ends_at_once() {
    let cluster = cluster(&[]);
    for protocol in PROTOCOLS.into_iter().cycle().take(8) {
        let arguments = [
            "run",
            "quick",
            "-i",
            "--rm",
            "--restart=Never",
            "--image=local/echo",
            "--",
            "said",
            "and",
            "gone",
        ];
        let mut talk = Conversation::in_pipes(&cluster, &arguments, protocol);
        talk.expect("said and gone");
        talk.expect("deleted");
        talk.end();
        cluster.eventually(&["get", "pods", "-o", "name"], str::is_empty);
    }
}

#[test]
fn cp_copies_files_and_folders_both_ways() {
    let cluster = cluster(&[]);
    cluster.create("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: local/sh, command: [sleep, '1234']}]}}");
    cluster.ready("p");
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own");
    std::fs::create_dir_all(own.join("inner")).expect("folders");
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    std::fs::write(own.join("inner/large"), &large).expect("a file");
    std::fs::write(own.join("small"), "text").expect("a file");
    for (index, protocol) in PROTOCOLS.into_iter().enumerate() {
        let there = format!("p:/tmp/orlop-there-{index}");
        let back = folder.path().join(format!("back-{index}"));
        for arguments in
            [["cp", &own.display().to_string(), &there], ["cp", &there, &back.display().to_string()]]
        {
            let (success, said) = cluster.run_with(&arguments, "", protocol);
            assert!(success, "{said}");
        }
        assert!(std::fs::read(back.join("inner/large")).expect("a file") == large);
        assert_eq!(std::fs::read(back.join("small")).expect("a file"), b"text");
    }
}
