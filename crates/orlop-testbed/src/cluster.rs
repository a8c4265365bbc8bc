//! One throw-away cluster.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    certificates,
    install::find_or_install,
    shell::{Account, run},
};

/// The cluster's superuser, for the testbed's own statements.
const ADMIN: &str = "admin";
/// The ordinary role that tests connect as, and its password where one is asked for.
const ROLE: &str = "orlop";
const PASSWORD: &str = "s3cret-of-tests";
/// Time that a statement waits for room in the socket's backlog.
const SOCKET_FULL_FOR: Duration = Duration::from_secs(20);

/// Stops the cluster and removes its directory when the pipe on its standard input closes. The kernel closes it
/// when the process at the other end exits, even by SIGKILL.
const WATCHDOG: &str = r#"
cat >/dev/null
"$1" -D "$2/data" -m immediate -s stop >/dev/null 2>&1
rm -rf "$2"
"#;

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// `fsync` of commits. Only benchmarks of something else turn it off.
    pub fsync: bool,
    /// TLS on the loopback port, with a certificate of a CA of its own.
    pub tls: bool,
    /// Additional lines of `postgresql.conf`.
    pub settings: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: true, tls: false, settings: Vec::new() }
    }
}

/// A running throw-away cluster; stopped and removed when dropped or when this process ends.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    account: Account,
    databases: AtomicU32,
    watchdog: Child,
}

impl Cluster {
    /// Starts a cluster with the default options.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&Options::default())
    }

    /// Starts a cluster.
    pub fn start_with(options: &Options) -> Result<Self, String> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let programs = find_or_install()?;
        let account = Account::unprivileged()?;
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("orlop-pg-{}-{number}", std::process::id()));
        let io = |error: std::io::Error| format!("{}: {error}", folder.display());
        // A process of the same id whose watchdog was killed may have left one.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(io)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).map_err(io)?;
        account.own(&folder)?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .args(account_command_line(&account, &programs.join("pg_ctl"), &folder)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(io)?;
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(io)?.port();
        let cluster = Self { programs, folder, port, account, databases: AtomicU32::new(0), watchdog };
        cluster.initialise(options)?;
        cluster.start_again()?;
        cluster.sql("postgres", &format!("create role {ROLE} login password '{PASSWORD}'"))?;
        Ok(cluster)
    }

    /// Returns the cluster that all tests of this process share, each with its own database.
    pub fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map_err(Clone::clone)
    }

    fn initialise(&self, options: &Options) -> Result<(), String> {
        let data = self.folder.join("data");
        let initdb =
            ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--username", ADMIN, "-D"];
        run(self.command("initdb").args(initdb).arg(&data))?;
        let socket = self.folder.display();
        let mut settings = format!(
            "\nlisten_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{socket}'\n\
             fsync = {}\nmax_connections = 200\npassword_encryption = 'scram-sha-256'\n",
            self.port,
            if options.fsync { "on" } else { "off" },
        );
        // The socket's directory is private, so its clients are trusted; the port asks for a password.
        let mut access = String::from("local all all trust\n");
        if options.tls {
            certificates::make(&self.folder, ROLE)?;
            for file in ["server.key", "server.crt", "ca.crt"] {
                self.account.own(&self.folder.join(file))?;
            }
            settings.push_str(&format!(
                "ssl = on\nssl_cert_file = '{socket}/server.crt'\nssl_key_file = '{socket}/server.key'\n\
                 ssl_ca_file = '{socket}/ca.crt'\n"
            ));
            access.push_str("hostssl certonly all 127.0.0.1/32 cert\n");
        }
        access.push_str("host all all 127.0.0.1/32 scram-sha-256\n");
        for line in &options.settings {
            settings.push_str(line);
            settings.push('\n');
        }
        let append = |name: &str, text: &str, keep: bool| {
            let path = data.join(name);
            let old = if keep { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
            fs::write(&path, old + text).map_err(|error| format!("{}: {error}", path.display()))
        };
        append("postgresql.conf", &settings, true)?;
        append("pg_hba.conf", &access, false)
    }

    /// Returns a connection string over the unix socket, as the ordinary role.
    pub fn url(&self, database: &str) -> String {
        let socket = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{ROLE}@{socket}:{}/{database}", self.port)
    }

    /// Returns a connection string over loopback, as the ordinary role with its password.
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the ordinary role's password over loopback.
    pub fn password(&self) -> &str {
        PASSWORD
    }

    /// Returns the loopback port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the directory of `ca.crt`, `client.crt` and `client.key`, if the cluster speaks TLS.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates an empty database that the ordinary role owns. Returns its name.
    pub fn create_database(&self) -> Result<String, String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.create_database_named(&name)?;
        Ok(name)
    }

    /// Creates an empty database of this name.
    pub fn create_database_named(&self, name: &str) -> Result<(), String> {
        self.sql("postgres", &format!("create database {name} owner {ROLE}")).map(drop)
    }

    /// Terminates every client connection to a database. Returns how many there were.
    pub fn terminate_connections(&self, database: &str) -> Result<usize, String> {
        let statement = format!(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity \
             where datname = '{database}' and pid <> pg_backend_pid()"
        );
        let printed = self.sql("postgres", &statement)?;
        printed.trim().parse().map_err(|_| format!("psql printed {printed:?}"))
    }

    /// Runs a statement as the superuser. Returns its output without headers.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String, String> {
        let port = self.port.to_string();
        let quiet = ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"];
        let deadline = Instant::now() + SOCKET_FULL_FOR;
        loop {
            let answer = run(self
                .command("psql")
                .args(quiet)
                .args(["-h", &self.folder.to_string_lossy(), "-p", &port, "-U", ADMIN])
                .args(["-d", database, "-c", statement]));
            match answer {
                // The backlog of the socket was full: nothing was sent.
                Err(error)
                    if error.contains("Resource temporarily unavailable") && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                answer => return answer,
            }
        }
    }

    /// Restarts the server with a clean shutdown.
    pub fn restart(&self) -> Result<(), String> {
        self.stop("fast")?;
        self.start_again()
    }

    /// Stops the server at once, as a crash would: the next start recovers from the write-ahead log.
    pub fn kill(&self) -> Result<(), String> {
        self.stop("immediate")
    }

    /// Starts the server after [`kill`](Self::kill).
    pub fn start_again(&self) -> Result<(), String> {
        let log = self.folder.join("server.log");
        self.control(&["-w", "-t", "60", "-l", &log.to_string_lossy(), "start"])
            .map_err(|error| format!("{error}\n{}", fs::read_to_string(&log).unwrap_or_default()))
    }

    fn stop(&self, mode: &str) -> Result<(), String> {
        self.control(&["-w", "-t", "60", "-m", mode, "stop"])
    }

    fn control(&self, arguments: &[&str]) -> Result<(), String> {
        // The server would otherwise inherit this process's output and keep it open.
        let status = self
            .command("pg_ctl")
            .arg("-D")
            .arg(self.folder.join("data"))
            .arg("-s")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .status()
            .map_err(|error| format!("pg_ctl could not be run: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("pg_ctl {arguments:?} failed with {status}")) }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(self.programs.join(program));
        command.current_dir(&self.folder);
        command
    }
}

/// Returns the watchdog's arguments: the program that stops the cluster, and the directory to remove.
fn account_command_line(account: &Account, program: &Path, folder: &Path) -> Result<[PathBuf; 2], String> {
    // `pg_ctl` refuses to run as root too, so a small script changes the user.
    let script = folder.join("stop");
    let command = account.command(program);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let text = format!("#!/bin/sh\ncd / && exec {} \"$@\"\n", words.join(" "));
    fs::write(&script, text)
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{}: {error}", script.display()))?;
    Ok([script, folder.to_owned()])
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Closing the pipe triggers the watchdog. Wait for it, so that nothing is left.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_starts_survives_a_crash_and_leaves_nothing() {
        let cluster = Cluster::start().unwrap();
        let database = cluster.create_database().unwrap();
        cluster.sql(&database, "create table t (n int); insert into t values (7)").unwrap();
        cluster.kill().unwrap();
        assert!(cluster.sql(&database, "select 1").is_err());
        cluster.start_again().unwrap();
        assert_eq!(cluster.sql(&database, "select n from t").unwrap().trim(), "7");
        assert_eq!(cluster.sql(&database, "show fsync").unwrap().trim(), "on");
        let (folder, port) = (cluster.folder.clone(), cluster.port);
        drop(cluster);
        assert!(!folder.exists());
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
