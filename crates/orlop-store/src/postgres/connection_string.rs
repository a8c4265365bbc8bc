//! Parses libpq's connection URLs. Parameters that tokio-postgres does not support are handled here.
//!
//! Errors never quote the string: a malformed part may be the password.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use tokio_postgres::config::{Config, Host, SslMode};

use crate::error::{Error, Result};

/// Parameters handled here; the others must be among `PASSED_ON`.
const OWN: [&str; 8] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "passfile",
    "password_file",
    "schema",
    "application_name",
];
const PASSED_ON: [&str; 17] = [
    "user",
    "password",
    "dbname",
    "options",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// Extent of server certificate verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// A parsed connection string.
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) verify: Verify,
    pub(super) root_certificate: Option<String>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    /// The PostgreSQL schema that holds the store's tables.
    pub(super) schema: String,
    password_file: Option<PathBuf>,
    passfile: Option<PathBuf>,
}

/// Omits the password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("config", &self.config).field("schema", &self.schema).finish()
    }
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own: [Option<String>; OWN.len()] = Default::default();
        let mut kept = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap_or_default();
            if let Some(place) = OWN.iter().position(|known| *known == name) {
                let value = pair.split_once('=').map_or("", |(_, value)| value);
                own[place] = Some(percent_decode(value).ok_or_else(malformed)?);
            } else if PASSED_ON.contains(&name) {
                kept.push(pair);
            } else {
                let known = [&OWN[..], &PASSED_ON].concat().join(", ");
                return Err(Error::Invalid(format!(
                    "the PostgreSQL connection string has an unknown parameter; known are {known}"
                )));
            }
        }
        let [mode, root, certificate, key, passfile, password_file, schema, application] = own;
        let rest = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        let mut config = Config::from_str(&rest).map_err(|_| malformed())?;
        config.application_name(application.as_deref().unwrap_or("orlop"));
        let verify = set_mode(&mut config, mode.as_deref(), root.is_some())?;
        set_timeouts(&mut config);
        let client_certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(Error::Invalid("sslcert and sslkey must be given together".into())),
        };
        let schema = schema.unwrap_or_else(|| "orlop".to_owned());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 48 || !schema.chars().all(plain) {
            return Err(Error::Invalid(
                "the schema of a connection string is up to 48 of a-z, 0-9 and _".into(),
            ));
        }
        Ok(Self {
            config,
            verify,
            root_certificate: root,
            client_certificate,
            schema,
            password_file: password_file.map(PathBuf::from),
            passfile: passfile.map(PathBuf::from),
        })
    }

    /// Returns the configuration with the password. Files are read each time, so that the next connection uses a rotated
    /// password.
    pub(super) fn with_password(&self) -> Result<Config> {
        let mut config = self.config.clone();
        if config.get_password().is_some() {
            return Ok(config);
        }
        if let Some(path) = &self.password_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Error::Unavailable(format!("password file {}: {error}", path.display())))?;
            config.password(text.trim_end_matches(['\r', '\n']));
        } else if let Some(password) = std::env::var_os("PGPASSWORD") {
            config.password(password.into_encoded_bytes());
        } else if let Some(password) = self.passfile_entry() {
            config.password(password);
        }
        Ok(config)
    }

    /// Looks up the password in libpq's file of `host:port:database:user:password` lines.
    fn passfile_entry(&self) -> Option<String> {
        let path = self
            .passfile
            .clone()
            .or_else(|| Some(std::env::var_os("PGPASSFILE")?.into()))
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))?;
        let host = match self.config.get_hosts().first()? {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.to_string_lossy().into_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432).to_string();
        let user = self.config.get_user().unwrap_or_default();
        let database = self.config.get_dbname().unwrap_or(user);
        password_for(&std::fs::read_to_string(path).ok()?, [&host, &port, database, user])
    }
}

fn malformed() -> Error {
    Error::Invalid(
        "the PostgreSQL connection string is not of the form \
         postgres://user:password@host:port/database?parameter=value (special characters as %XX)"
            .into(),
    )
}

/// Sets tokio-postgres' part of `sslmode` and returns the verification.
fn set_mode(config: &mut Config, mode: Option<&str>, has_root: bool) -> Result<Verify> {
    let (ssl, verify) = match mode.unwrap_or("prefer") {
        "disable" => (SslMode::Disable, Verify::Nothing),
        "allow" | "prefer" => (SslMode::Prefer, Verify::Nothing),
        // As libpq does: naming an authority implies verification.
        "require" if has_root => (SslMode::Require, Verify::Authority),
        "require" => (SslMode::Require, Verify::Nothing),
        "verify-ca" => (SslMode::Require, Verify::Authority),
        "verify-full" => (SslMode::Require, Verify::AuthorityAndName),
        _ => {
            return Err(Error::Invalid(
                "sslmode is one of disable, allow, prefer, require, verify-ca, verify-full".into(),
            ));
        }
    };
    if verify != Verify::Nothing && !has_root {
        return Err(Error::Invalid(
            "sslmode=verify-ca and verify-full need sslrootcert: a file, or `system`".into(),
        ));
    }
    // A unix socket has no network in between; libpq ignores sslmode there too.
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    config.ssl_mode(if local { SslMode::Disable } else { ssl });
    Ok(verify)
}

/// Sets timeouts that detect a dead network in seconds instead of the kernel's hours.
fn set_timeouts(config: &mut Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(20));
    }
    if config.get_keepalives_idle() >= Duration::from_secs(3600) {
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
    }
}

/// Decodes percent-encoding; `None` if the result is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns the password of the first line that matches host, port, database and user.
fn password_for(file: &str, wanted: [&str; 4]) -> Option<String> {
    file.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = vec![String::new()];
        let mut characters = line.chars();
        while let Some(c) = characters.next() {
            match c {
                ':' if fields.len() < 5 => fields.push(String::new()),
                '\\' => fields.last_mut()?.extend(characters.next()),
                c => fields.last_mut()?.push(c),
            }
        }
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let matches = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        matches.then_some(password)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_parameters_are_handled_and_others_passed_on() {
        let target = Target::parse(
            "postgres://me@db:6000/x?sslmode=verify-full&sslrootcert=%2Fca.crt&connect_timeout=3",
        )
        .unwrap();
        assert_eq!(target.verify, Verify::AuthorityAndName);
        assert_eq!(target.root_certificate.as_deref(), Some("/ca.crt"));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(target.schema, "orlop");
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for url in [
            "postgres://me:hun?ter2@db/x",
            "postgres://me:hunter2@db:notaport/x",
            "postgres://me:hunter2@db/x?hunter2=1",
            "postgres://me:hunter2@db/x?sslmode=hunter2",
            "postgres://me:hunter2@db/x?sslmode=verify-full",
            "postgres://me:hunter2@db/x?sslcert=a",
            "postgres://me:hunter2@db/x?schema=Quoted\"hunter2",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{url}: {error}");
            assert!(!error.to_string().contains("ter2"), "{url}: {error}");
        }
        let target = Target::parse("postgres://me:hunter2@db/x").unwrap();
        assert!(!format!("{target:?}").contains("hunter2"));
    }

    #[test]
    fn unix_socket_disables_tls() {
        let target = Target::parse("postgres://me@%2Frun%2Fpg:5433/x?sslmode=require").unwrap();
        assert_eq!(target.config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn passfile_is_parsed_like_libpq() {
        let file = "# comment\nother:*:*:*:no\ndb:5432:a\\:b:me:p\\:w:d\n*:*:*:*:any\n";
        assert_eq!(password_for(file, ["db", "5432", "a:b", "me"]).as_deref(), Some("p:w:d"));
        assert_eq!(password_for(file, ["db", "5432", "x", "me"]).as_deref(), Some("any"));
        assert_eq!(password_for("db:1:2", ["db", "1", "2", "3"]), None);
    }
}
