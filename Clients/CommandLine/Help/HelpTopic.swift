import NephosCore

/// A subject that `nephos help TOPIC` explains.
enum HelpTopic: String, CaseIterable {
    case conflicts
    case offline
    case passwords
    case backup
    case exitCodes = "exit-codes"

    static var list: String { allCases.map(\.rawValue).joined(separator: ", ") }

    /// The topic that the arguments ask for; nil: none.
    init?(in arguments: some Collection<String>) {
        let words = arguments.filter { !$0.hasPrefix("-") }
        guard words.count == 2, words.first == "help", let topic = words.last.flatMap(HelpTopic.init(rawValue:)) else {
            return nil
        }
        self = topic
    }

    /// Lines of at most 80 characters.
    var text: String {
        switch self {
        case .conflicts:
            """
            CONFLICTS
            Two devices can change the same item before they hear of each other. Then one
            change wins, and no content is lost:

              keys     The later change wins. The other value is in nephos conflicts.
              files    The first version that the server gets stays. The other one is kept
                       beside it until you decide.
              records  The server's record stays. Yours waits until you decide.

            Look at all of them, with the commands that decide them:  nephos conflicts
            Keep a version of a file:           nephos docs resolve FILE --keep ID
            Keep both as files:                 nephos docs resolve FILE --keep-both
            Keep your record:                   nephos records resolve NAME --keep client
            Accept the current value of a key:  nephos kv resolve KEY
            """
        case .offline:
            """
            OFFLINE
            Each device has a copy of its data, so reading and writing work without the
            server. Changes are saved on the device and sent when the server answers.

              Reading waits a second for the server, then prints the device's copy.
                --offline  does not ask the server.    --fresh  fails without an answer.
              Writing waits for the server (--timeout) and then succeeds: exit code 0.

            Send pending changes now, and see whether all is in sync:  nephos status
            See why a change is pending or rejected:                   nephos why
            Keep files here for reading offline:  nephos docs download --pin FOLDER
            """
        case .passwords:
            """
            PASSWORDS
            Commands ask for a password at the terminal. Scripts give it in three ways:

              --password-file FILE   the first line of a file
              --password-stdin       the first line of standard input
              NEPHOS_PASSWORD        an environment variable

            Change your password:                        nephos account password
            Set the password of a person who forgot it:  nephos account set-password NAME
            A new device has to wait after wrong passwords of others. Skip this wait with a
            code from a signed-in device:                nephos devices allow-sign-in
            A lost device:                               nephos devices revoke NAME
            """
        case .backup:
            """
            BACKUP
            A backup is a folder with snapshots of the whole server. Put it on another disk.

              nephos backup make FOLDER     create a snapshot, while the services run
              nephos backup verify FOLDER   check that all snapshots are intact
              nephos backup list FOLDER     list them
              nephos restore FOLDER         restore the newest snapshot on an empty machine

            nephos init printed the recovery key once. Only this key opens the secrets in a
            backup: keep it on paper. After a restore the devices send again what they have
            and the snapshot lacks.
            """
        case .exitCodes:
            "EXIT CODES\n"
                + Table(ExitStatus.allCases.map { ["  \($0.rawValue)", $0.meaning] }).text(width: nil)
        }
    }
}
